// A code is a logarithm, rounded up. That of a polynomial is good enough for all values but the few beside a
// threshold, and these are compared with it.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/kernels/logarithm.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 16;

__m512 log2_of(__m512 magnitude) noexcept {
  const __m512 mantissa = _mm512_getmant_ps(magnitude, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
  const __m512 t = _mm512_sub_ps(mantissa, _mm512_set1_ps(kLogarithmMiddle));
  __m512 sum = _mm512_set1_ps(kLogarithm[0]);
  for (unsigned i = 1; i < kLogarithmTerms; ++i) {
    sum = _mm512_fmadd_ps(sum, t, _mm512_set1_ps(kLogarithm[i]));
  }
  return _mm512_add_ps(sum, _mm512_getexp_ps(magnitude));
}

__m512 log2_of_bits(std::uint32_t bits) noexcept {
  return log2_of(_mm512_set1_ps(bit_cast<float>(bits)));
}

struct Quantizer {
  const Codebook& book;
  __m512 log_of_sum;
  __m512 codes_per_octave;
  __m512 doubtful;

  explicit Quantizer(const Codebook& codebook) noexcept : book(codebook) {
    log_of_sum = log2_of_bits(book.values[0]);
    const __m512 octaves = _mm512_sub_ps(log_of_sum, log2_of_bits(book.values[book.last]));
    const __m512 codes = _mm512_set1_ps(static_cast<float>(book.last));
    codes_per_octave = book.last > 0 ? _mm512_div_ps(codes, octaves) : _mm512_setzero_ps();
    doubtful =
        _mm512_fmadd_ps(codes_per_octave, _mm512_set1_ps(kDoubtfulOctaves), _mm512_set1_ps(kDoubtfulCodes));
  }

  __m512i codes_of(__m512 magnitudes, __mmask16 lanes) const noexcept {
    const __m512 exact = _mm512_mul_ps(_mm512_sub_ps(log_of_sum, log2_of(magnitudes)), codes_per_octave);
    const __m512 near = _mm512_roundscale_ps(exact, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 distance = _mm512_sub_ps(exact, near);
    // Those above the next whole number go up.
    const __mmask16 up = _mm512_cmp_ps_mask(distance, _mm512_setzero_ps(), _CMP_GT_OQ);
    const __m512i whole = _mm512_cvtps_epi32(near);
    const __m512i codes = _mm512_mask_add_epi32(whole, up, whole, _mm512_set1_epi32(1));
    const __mmask16 asked = _mm512_mask_cmp_ps_mask(lanes, _mm512_abs_ps(distance), doubtful, _CMP_LE_OQ);
    if (asked == 0) return codes;
    const __m512i last = _mm512_set1_epi32(static_cast<int>(book.last));
    const __m512i tried = _mm512_min_epu32(_mm512_max_epi32(whole, _mm512_setzero_si512()), last);
    const __m512i value = _mm512_mask_i32gather_epi32(last, asked, tried, book.values, 4);
    const __mmask16 below = _mm512_cmplt_epu32_mask(_mm512_castps_si512(magnitudes), value);
    return _mm512_mask_mov_epi32(codes, asked,
                                 _mm512_mask_add_epi32(tried, below, tried, _mm512_set1_epi32(1)));
  }
};

// Leaves x less its code's value.
void subtract(const Input& input, const Codebook& book, const Collected& pairs, const std::uint16_t* codes,
              std::uint32_t at, std::uint32_t count) noexcept {
  for (std::uint32_t i = at; i < at + count; ++i) {
    const std::uint32_t sign = bit_cast<std::uint32_t>(pairs.values[i]) & ~kMagnitudeMask;
    const std::uint32_t value = book.values[codes[i] & kMaxCode] | sign;
    input.left[pairs.keys[i]] = pairs.values[i] - bit_cast<float>(value);
  }
}

}  // namespace

CodeRange quantize(const Input& input, const Codebook& book, const Collected& pairs,
                   std::uint16_t* codes_of_pairs) {
  if (book.values[book.last] < kSmallestNormal) {
    return kernels_for(TargetId::kReference).quantize(input, book, pairs, codes_of_pairs);
  }
  const Quantizer quantizer(book);
  __m512i lowest = _mm512_set1_epi32(kMaxCode);
  __m512i highest = _mm512_setzero_si512();
  for (std::uint32_t i = 0; i < pairs.pairs; i += kLanes) {
    const std::uint32_t left = pairs.pairs - i;
    const auto lanes = static_cast<__mmask16>(left < kLanes ? (1U << left) - 1 : 0xFFFF);
    const __m512i bits = _mm512_castps_si512(_mm512_maskz_loadu_ps(lanes, pairs.values + i));
    const __m512i magnitudes = _mm512_and_si512(bits, _mm512_set1_epi32(kMagnitudeMask));
    const __m512i codes = quantizer.codes_of(_mm512_castsi512_ps(magnitudes), lanes);
    lowest = _mm512_mask_min_epi32(lowest, lanes, lowest, codes);
    highest = _mm512_mask_max_epi32(highest, lanes, highest, codes);
    const __m512i signs = _mm512_slli_epi32(_mm512_srli_epi32(bits, 31), 15);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes_of_pairs + i),
                        _mm512_cvtepi32_epi16(_mm512_or_si512(codes, signs)));
    if (input.left != nullptr) subtract(input, book, pairs, codes_of_pairs, i, left < kLanes ? left : kLanes);
  }
  return {static_cast<std::uint32_t>(_mm512_reduce_min_epi32(lowest)),
          static_cast<std::uint32_t>(_mm512_reduce_max_epi32(highest))};
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
