// What eight values become: gcomp_classify_ops.h for AVX2. Masks are words of all ones or zeros.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "codecs/gcomp/gcomp_classify_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx2.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

// In each word of what the classifier gives: the level above the number of bits that are cut.
inline constexpr unsigned kLevelShift = 5;
inline constexpr std::uint32_t kCutMask = 31;

struct Classified8 {
  __m256i kept;   // bits as a decoder will see them
  __m256i level;  // 32 * level + bits cut
  __m256i some;   // mask: not +0
};

[[gnu::always_inline]] inline __m256i exponents_of(__m256i bits) noexcept {
  return _mm256_srli_epi32(_mm256_slli_epi32(bits, 1), kMantissaBits + 1);
}

// Sorts values by a rule. kWhole: nothing is cut.
template <Keep kKeep, bool kWhole>
class Classifier8 {
 public:
  [[gnu::always_inline]] explicit Classifier8(const Rule& rule) noexcept
      : per_level_(rule.step == 1 ? kThird : kSixth), step_(rule.step) {
    level_ = all_words(rule.level << kLevelShift | kCutBitsPerLevel * rule.level);
  }

  // `significance` may be null unless it decides.
  [[gnu::always_inline]] Classified8 operator()(__m256i bits, const float* significance) const noexcept {
    const __m256i zero = _mm256_setzero_si256();
    const __m256i exponent = exponents_of(bits);
    const __m256i flushed = _mm256_cmpeq_epi32(exponent, zero);
    if constexpr (kKeep == Keep::kEverything) {
      const __m256i none = _mm256_cmpeq_epi32(bits, zero);
      const __m256i tiny = _mm256_andnot_si256(none, flushed);
      return {bits, _mm256_and_si256(tiny, all_words(1U << kLevelShift)),
              _mm256_xor_si256(none, all_words(~0U))};
    } else {
      const __m256i normal = _mm256_xor_si256(flushed, all_words(~0U));
      if constexpr (kWhole) return {_mm256_and_si256(normal, bits), zero, normal};
      const __m256i cuttable =
          _mm256_andnot_si256(_mm256_cmpgt_epi32(exponent, all_words(kHighestCut)), normal);
      const __m256i level = _mm256_and_si256(cuttable, levels(exponent, significance));
      return {_mm256_and_si256(normal, rounded(bits, level)), level, normal};
    }
  }

 private:
  static constexpr std::uint32_t kThird = 43;  // distance * 43 / 128 is distance / 3, below 64
  static constexpr std::uint32_t kSixth = 22;  // distance * 22 / 128 is distance / 6, below 35

  [[gnu::always_inline]] __m256i levels(__m256i exponent, const float* significance) const noexcept {
    if constexpr (kKeep != Keep::kSignificance) return level_;
    const __m256i magnitude = _mm256_and_si256(load_words(significance), all_words(kMagnitudeMask));
    const __m256i seen = _mm256_srli_epi32(magnitude, kMantissaBits);
    __m256i distance = _mm256_sub_epi32(seen, _mm256_sub_epi32(exponent, all_words(1)));
    const __m256i special = _mm256_cmpeq_epi32(seen, all_words(255));
    if (_mm256_testz_si256(special, special) == 0) [[unlikely]] {
      const __m256i infinite = _mm256_cmpeq_epi32(magnitude, all_words(kExponentMask));
      distance = _mm256_blendv_epi8(distance, _mm256_and_si256(infinite, all_words(kFarDistance)), special);
    }
    distance =
        _mm256_min_epi32(_mm256_max_epi32(distance, _mm256_setzero_si256()), all_words(most_distance()));
    // Both products stay within 16 bits.
    const __m256i cuts = _mm256_srli_epi32(_mm256_mullo_epi16(distance, all_words(per_level_)), 7);
    const __m256i level = _mm256_mullo_epi16(cuts, all_words(step_));
    const __m256i cut = _mm256_add_epi32(level, _mm256_add_epi32(level, level));
    return _mm256_or_si256(_mm256_slli_epi32(level, kLevelShift), cut);
  }

  // The highest level begins there: 21 of 8 levels, 18 of 4.
  [[gnu::always_inline]] std::uint32_t most_distance() const noexcept {
    return kCutBitsPerLevel * ((kLevels - 1) / step_ * step_);
  }

  // To nearest, ties to even; a carry goes into the exponent.
  [[gnu::always_inline]] static __m256i rounded(__m256i bits, __m256i level) noexcept {
    const __m256i one = all_words(1);
    const __m256i cut = _mm256_and_si256(level, all_words(kCutMask));
    const __m256i low = _mm256_sub_epi32(_mm256_sllv_epi32(one, cut), one);
    const __m256i odd = _mm256_and_si256(_mm256_and_si256(_mm256_srlv_epi32(bits, cut), low), one);
    const __m256i half = _mm256_srli_epi32(low, 1);
    return _mm256_andnot_si256(low, _mm256_add_epi32(_mm256_add_epi32(bits, half), odd));
  }

  __m256i level_;  // where all have the same
  std::uint32_t per_level_;
  std::uint32_t step_;
};

// Eight of in + residual.
template <bool kResidual>
[[gnu::always_inline]] inline __m256i input_of(const Values& values, std::uint32_t at) noexcept {
  const __m256 in = _mm256_loadu_ps(values.in + at);
  if constexpr (!kResidual) return _mm256_castps_si256(in);
  return _mm256_castps_si256(_mm256_add_ps(in, _mm256_loadu_ps(values.residual + at)));
}

// Leaves in the residual what the cut took.
template <bool kResidual>
[[gnu::always_inline]] inline void keep_left_over(const Values& values, std::uint32_t at, __m256i bits,
                                                  __m256i kept) noexcept {
  if constexpr (!kResidual) return;
  const __m256i exponent = _mm256_and_si256(bits, all_words(kExponentMask));
  const __m256i infinite = _mm256_cmpeq_epi32(exponent, all_words(kExponentMask));
  const __m256 left = _mm256_sub_ps(_mm256_castsi256_ps(bits), _mm256_castsi256_ps(kept));
  _mm256_storeu_ps(values.residual + at, _mm256_andnot_ps(_mm256_castsi256_ps(infinite), left));
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
