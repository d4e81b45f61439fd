// A code is a logarithm, rounded up. That of a polynomial is good enough for all values but the few beside a
// threshold, and these are compared with it.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/fastsgd/fastsgd_quantize_ops.h"
#include "codecs/kernels/logarithm.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 8;

__m256i all_of(std::uint32_t value) noexcept {
  return _mm256_set1_epi32(static_cast<int>(value));
}

// REQUIRES: magnitudes of normal numbers.
__m256 log2_of(__m256i bits) noexcept {
  const __m256i exponent = _mm256_sub_epi32(_mm256_srli_epi32(bits, 23), all_of(127));
  const __m256i mantissa = _mm256_or_si256(_mm256_and_si256(bits, all_of(0x007FFFFF)), all_of(0x3F800000));
  const __m256 t = _mm256_sub_ps(_mm256_castsi256_ps(mantissa), _mm256_set1_ps(kLogarithmMiddle));
  __m256 sum = _mm256_set1_ps(kLogarithm[0]);
  for (unsigned i = 1; i < kLogarithmTerms; ++i) {
    sum = _mm256_add_ps(_mm256_mul_ps(sum, t), _mm256_set1_ps(kLogarithm[i]));
  }
  return _mm256_add_ps(sum, _mm256_cvtepi32_ps(exponent));
}

struct Quantizer {
  const Codebook& book;
  __m256 log_of_sum;
  __m256 codes_per_octave;
  __m256 doubtful;

  explicit Quantizer(const Codebook& codebook) noexcept : book(codebook) {
    log_of_sum = log2_of(all_of(book.values[0]));
    const __m256 octaves = _mm256_sub_ps(log_of_sum, log2_of(all_of(book.values[book.last])));
    const __m256 codes = _mm256_set1_ps(static_cast<float>(book.last));
    codes_per_octave = book.last > 0 ? _mm256_div_ps(codes, octaves) : _mm256_setzero_ps();
    doubtful = _mm256_add_ps(_mm256_mul_ps(codes_per_octave, _mm256_set1_ps(kDoubtfulOctaves)),
                             _mm256_set1_ps(kDoubtfulCodes));
  }

  // Compares those of the mask with their thresholds.
  __m256i decided(__m256i codes, __m256i magnitudes, __m256i whole, unsigned mask) const noexcept {
    Guesses<kLanes> guesses;
    _mm256_store_si256(reinterpret_cast<__m256i*>(guesses.codes), codes);
    _mm256_store_si256(reinterpret_cast<__m256i*>(guesses.magnitudes), magnitudes);
    _mm256_store_si256(reinterpret_cast<__m256i*>(guesses.near), whole);
    decide(book, mask, guesses);
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(guesses.codes));
  }

  // `lanes`: those that are values at all.
  __m256i codes_of(__m256i magnitudes, unsigned lanes) const noexcept {
    const __m256 exact = _mm256_mul_ps(_mm256_sub_ps(log_of_sum, log2_of(magnitudes)), codes_per_octave);
    const __m256 near = _mm256_round_ps(exact, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 distance = _mm256_sub_ps(exact, near);
    const __m256i whole = _mm256_cvtps_epi32(near);
    // Those above the next whole number go up.
    const __m256 up = _mm256_cmp_ps(distance, _mm256_setzero_ps(), _CMP_GT_OQ);
    const __m256i codes = _mm256_sub_epi32(whole, _mm256_castps_si256(up));
    const __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), distance);
    const auto mask =
        static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(size, doubtful, _CMP_LE_OQ))) & lanes;
    return mask == 0 ? codes : decided(codes, magnitudes, whole, mask);
  }
};

}  // namespace

CodeRange quantize(const PairInput& input, const Codebook& book, const Collected& pairs,
                   std::uint16_t* codes_of_pairs) {
  if (book.values[book.last] < kSmallestNormal) {
    return kernels_for(TargetId::kReference).quantize(input, book, pairs, codes_of_pairs);
  }
  const Quantizer quantizer(book);
  __m256i lowest = all_of(kMaxCode);
  __m256i highest = _mm256_setzero_si256();
  for (std::uint32_t i = 0; i < pairs.pairs; i += kLanes) {
    const std::uint32_t left = pairs.pairs - i;
    const __m256i inside = _mm256_cmpgt_epi32(all_of(left), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i bits = _mm256_castps_si256(_mm256_maskload_ps(pairs.values + i, inside));
    const __m256i magnitudes = _mm256_and_si256(bits, all_of(kMagnitudeMask));
    const auto lanes = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(inside)));
    const __m256i codes = quantizer.codes_of(magnitudes, lanes);
    lowest = _mm256_min_epi32(lowest, _mm256_blendv_epi8(lowest, codes, inside));
    highest = _mm256_max_epi32(highest, _mm256_and_si256(codes, inside));
    const __m256i signs = _mm256_slli_epi32(_mm256_srli_epi32(bits, 31), 15);
    // Of what lies behind the last pair any 16 bits will do.
    const __m256i numbers = _mm256_and_si256(_mm256_or_si256(codes, signs), all_of(0xFFFF));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(numbers, numbers), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes_of_pairs + i), _mm256_castsi256_si128(packed));
    if (input.left != nullptr) subtract(input, book, pairs, codes_of_pairs, i, left < kLanes ? left : kLanes);
  }
  std::uint32_t low[kLanes];
  std::uint32_t high[kLanes];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), lowest);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(high), highest);
  CodeRange range{low[0], high[0]};
  for (unsigned i = 1; i < kLanes; ++i) {
    range.lowest = low[i] < range.lowest ? low[i] : range.lowest;
    range.highest = high[i] > range.highest ? high[i] : range.highest;
  }
  return range;
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
