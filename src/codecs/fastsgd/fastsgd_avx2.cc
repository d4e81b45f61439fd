// Kernels for AVX2.
#include "codecs/fastsgd/fastsgd_avx2.h"

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/fastsgd/fastsgd_vectors_ops.h"
#include "codecs/kernels/compaction_avx2.h"
#include "codecs/kernels/logarithm.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Which values are sent.
namespace {

constexpr std::uint32_t kLanes = 8;

// All bits of the lanes below `count`.
__m256i first_lanes(std::uint32_t count) noexcept {
  return _mm256_cmpgt_epi32(all_of(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

__m256i places(std::uint64_t at) noexcept {
  return _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), all_of(static_cast<std::uint32_t>(at)));
}

// Writes the chosen of eight pairs; returns how many they are.
std::uint32_t put(__m256i keys, __m256i bits, unsigned mask, const PairOutput& out,
                  std::uint32_t behind) noexcept {
  if (mask != 0xFF) {
    const __m256i order = compaction_of(mask);
    keys = compacted(keys, order);
    bits = compacted(bits, order);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.keys + behind), keys);
  _mm256_storeu_ps(out.values + behind, _mm256_castsi256_ps(bits));
  return popcount(mask);
}

struct Vectors {
  static constexpr std::uint32_t kRest = kLanes;

  __m256i below_cut;  // magnitudes are compared as signed numbers, of which they are no negative ones
  __m256i bits[kGroup / kLanes];

  explicit Vectors(std::uint32_t cut) noexcept : below_cut(all_of(cut - 1)) {}

  static bool are_all_sent(const float* values, std::uint32_t count, std::uint32_t cut) noexcept {
    const __m256i least = all_of(cut);
    for (std::uint32_t i = 0; i < count; i += kGroup) {
      __m256i dropped = _mm256_setzero_si256();
      for (std::uint32_t j = i; j < i + kGroup && j < count; j += kLanes) {
        const __m256i lanes = first_lanes(count - j < kLanes ? count - j : kLanes);
        const __m256i row = _mm256_castps_si256(_mm256_maskload_ps(values + j, lanes));
        const __m256i magnitudes = _mm256_and_si256(row, all_of(kMagnitudeMask));
        dropped = _mm256_or_si256(dropped, _mm256_and_si256(_mm256_cmpgt_epi32(least, magnitudes), lanes));
      }
      if (_mm256_testz_si256(dropped, dropped) == 0) return false;
    }
    return true;
  }

  // Which of eight x are sent.
  unsigned chosen_of(__m256i x) const noexcept {
    const __m256i magnitudes = _mm256_and_si256(x, all_of(kMagnitudeMask));
    const __m256i kept = _mm256_cmpgt_epi32(magnitudes, below_cut);
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(kept)));
  }

  template <bool kResidual>
  [[gnu::always_inline]] std::uint64_t look_at(const PairInput& input, std::uint64_t at) noexcept {
    std::uint64_t chosen = 0;
    for (unsigned i = 0; i < kGroup / kLanes; ++i) {
      const std::uint64_t first = at + i * kLanes;
      __m256 x = _mm256_loadu_ps(input.in + first);
      if constexpr (kResidual) {
        x = _mm256_add_ps(x, _mm256_loadu_ps(input.residual + first));
        _mm256_storeu_ps(input.left + first, x);
      }
      bits[i] = _mm256_castps_si256(x);
      chosen |= std::uint64_t{chosen_of(bits[i])} << i * kLanes;
    }
    return chosen;
  }

  template <bool kResidual, bool kKeys>
  [[gnu::always_inline]] std::uint32_t take(const PairInput& input, std::uint64_t at, std::uint64_t chosen,
                                            const PairOutput& out) const noexcept {
    std::uint32_t pairs = 0;
    for (unsigned i = 0; i < kGroup / kLanes; ++i) {
      const std::uint64_t first = at + i * kLanes;
      const __m256i keys =
          kKeys ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(input.keys + first)) : places(first);
      pairs += put(keys, bits[i], static_cast<unsigned>(chosen >> i * kLanes & 0xFF), out, pairs);
    }
    return pairs;
  }

  template <bool kResidual, bool kKeys>
  std::uint32_t rest(const PairInput& input, std::uint64_t at, std::uint32_t count,
                     const PairOutput& out) const noexcept {
    const __m256i lanes = first_lanes(count);
    __m256 x = _mm256_maskload_ps(input.in + at, lanes);
    if constexpr (kResidual) {
      x = _mm256_add_ps(x, _mm256_maskload_ps(input.residual + at, lanes));
      _mm256_maskstore_ps(input.left + at, lanes, x);
    }
    __m256i keys = places(at);
    if constexpr (kKeys) keys = _mm256_maskload_epi32(reinterpret_cast<const int*>(input.keys + at), lanes);
    const __m256i of_rest = _mm256_castps_si256(x);
    return put(keys, of_rest, chosen_of(of_rest) & ((1U << count) - 1), out, 0);
  }
};

}  // namespace

Collected collect(const PairInput& input, std::uint64_t& at, std::uint32_t cut, const Staging& staging) {
  return collect_by<Vectors>(input, at, cut, staging);
}

// A code is a logarithm, rounded up. A polynomial is exact enough for all values but the few close to a
// threshold, which are compared with it.
namespace {

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

  // `lanes`: those that hold values.
  __m256i codes_of(__m256i magnitudes, unsigned lanes) const noexcept {
    const __m256 exact = _mm256_mul_ps(_mm256_sub_ps(log_of_sum, log2_of(magnitudes)), codes_per_octave);
    const __m256 near = _mm256_round_ps(exact, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 distance = _mm256_sub_ps(exact, near);
    const __m256i whole = _mm256_cvtps_epi32(near);
    // Those above the nearest whole number go up.
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
    // Behind the last pair any 16 bits will do.
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

void open_values(ValueStream& values, const DecodeRules& rules, const Head& head, float scale) {
  fill_values(values, rules, head, scale);
}

void read_values(ValueStream& values, std::uint32_t count, float* out) {
  read_one_by_one(values, count, out);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
