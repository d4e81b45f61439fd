// What sixteen values become: gcomp_classify_ops.h for AVX-512.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "codecs/gcomp/gcomp_classify_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

// In each word of what the classifier gives: the level above the number of bits that are cut.
inline constexpr unsigned kLevelShift = 5;
inline constexpr std::uint32_t kCutMask = 31;

struct Classified16 {
  __m512i kept;        // bits as a decoder will see them
  __m512i level;       // 32 * level + bits cut
  __mmask16 some = 0;  // not +0
};

[[gnu::always_inline]] inline __m512i exponents_of(__m512i bits) noexcept {
  return _mm512_srli_epi32(_mm512_slli_epi32(bits, 1), kMantissaBits + 1);
}

// Sorts values by a rule. kWhole: nothing is cut.
template <Keep kKeep, bool kWhole>
class Classifier16 {
 public:
  [[gnu::always_inline]] explicit Classifier16(const Rule& rule) noexcept {
    alignas(64) std::uint32_t levels[kFarDistance + 1];
    for (std::int32_t distance = 0; distance <= kFarDistance; ++distance) {
      const std::uint32_t level =
          kKeep == Keep::kSignificance ? significance_level(distance, rule.step) : rule.level;
      levels[distance] = level << kLevelShift | kCutBitsPerLevel * level;
    }
    near_ = _mm512_load_si512(levels);
    far_ = _mm512_load_si512(levels + 16);
  }

  // `significance` may be null unless it decides.
  [[gnu::always_inline]] Classified16 operator()(__m512i bits, const float* significance,
                                                 __mmask16 present) const noexcept {
    if constexpr (kKeep == Keep::kEverything) {
      const __mmask16 some = _mm512_test_epi32_mask(bits, bits);
      const __mmask16 tiny =
          _mm512_mask_testn_epi32_mask(some, bits, _mm512_set1_epi32(static_cast<int>(kExponentMask)));
      return {bits, _mm512_maskz_set1_epi32(tiny, 1 << kLevelShift), some};
    } else {
      const __m512i exponent = exponents_of(bits);
      const __mmask16 normal = _mm512_test_epi32_mask(exponent, exponent);
      if constexpr (kWhole) return {_mm512_maskz_mov_epi32(normal, bits), _mm512_setzero_si512(), normal};
      const __mmask16 cuttable =
          _mm512_mask_cmple_epu32_mask(normal, exponent, _mm512_set1_epi32(kHighestCut));
      const __m512i level = levels(exponent, cuttable, significance, present);
      return {_mm512_maskz_mov_epi32(normal, rounded(bits, level)), level, normal};
    }
  }

 private:
  [[gnu::always_inline]] __m512i levels(__m512i exponent, __mmask16 cuttable, const float* significance,
                                        __mmask16 present) const noexcept {
    if constexpr (kKeep != Keep::kSignificance) return _mm512_maskz_mov_epi32(cuttable, near_);
    const __m512i magnitude =
        _mm512_and_si512(_mm512_maskz_loadu_epi32(present, significance), _mm512_set1_epi32(kMagnitudeMask));
    const __m512i seen = _mm512_srli_epi32(magnitude, kMantissaBits);
    __m512i distance = _mm512_sub_epi32(seen, _mm512_sub_epi32(exponent, _mm512_set1_epi32(1)));
    const __mmask16 special = _mm512_cmpeq_epi32_mask(seen, _mm512_set1_epi32(255));
    if (special != 0) [[unlikely]] {
      const __mmask16 infinite = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(kExponentMask));
      distance = _mm512_mask_mov_epi32(distance, special, _mm512_maskz_set1_epi32(infinite, kFarDistance));
    }
    distance = _mm512_max_epi32(distance, _mm512_setzero_si512());
    distance = _mm512_min_epi32(distance, _mm512_set1_epi32(kFarDistance));
    return _mm512_maskz_permutex2var_epi32(cuttable, near_, distance, far_);
  }

  // To nearest, ties to even; a carry goes into the exponent.
  [[gnu::always_inline]] static __m512i rounded(__m512i bits, __m512i level) noexcept {
    const __m512i one = _mm512_set1_epi32(1);
    const __m512i cut = _mm512_and_si512(level, _mm512_set1_epi32(kCutMask));
    const __m512i low = _mm512_sub_epi32(_mm512_sllv_epi32(one, cut), one);
    const __m512i odd = _mm512_ternarylogic_epi32(_mm512_srlv_epi32(bits, cut), low, one, 0x80);
    const __m512i half = _mm512_srli_epi32(low, 1);
    return _mm512_andnot_si512(low, _mm512_add_epi32(_mm512_add_epi32(bits, half), odd));
  }

  __m512i near_;  // by distance
  __m512i far_;
};

// Sixteen of in + residual.
template <bool kResidual>
[[gnu::always_inline]] inline __m512i input_of(const Values& values, std::uint32_t at,
                                               __mmask16 present) noexcept {
  const __m512 in = _mm512_maskz_loadu_ps(present, values.in + at);
  if constexpr (!kResidual) return _mm512_castps_si512(in);
  return _mm512_castps_si512(_mm512_add_ps(in, _mm512_maskz_loadu_ps(present, values.residual + at)));
}

// Leaves in the residual what the cut took.
template <bool kResidual>
[[gnu::always_inline]] inline void keep_left_over(const Values& values, std::uint32_t at, __mmask16 present,
                                                  __m512i bits, __m512i kept) noexcept {
  if constexpr (!kResidual) return;
  const __m512i exponent = _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(kExponentMask)));
  const __mmask16 finite =
      _mm512_cmpneq_epi32_mask(exponent, _mm512_set1_epi32(static_cast<int>(kExponentMask)));
  const __m512 left = _mm512_maskz_sub_ps(finite, _mm512_castsi512_ps(bits), _mm512_castsi512_ps(kept));
  _mm512_mask_storeu_ps(values.residual + at, present, left);
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
