// What 32 values become: gcomp_classify_ops.h for AVX-512. What is known of a value fits into 16 bits, so the
// rules look at 32 values at once, in words: of a pair of vectors, the low half of double word i belongs to
// value i, the high half to value 16 + i.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "codecs/gcomp/gcomp_classify_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

// Exponents stay where they are in the upper half of a float.
inline constexpr unsigned kExponentShift = kMantissaBits - 16;
inline constexpr std::uint32_t kExponentWord = kExponentMask >> 16;

// In each word of a level: above its lowest 4 bits 32 times the level; and these are what a table of sixteen
// knows the level by, the number of bits cut without its highest.
inline constexpr unsigned kLevelShift = 5;
inline constexpr unsigned kLevelWord = (kLevels - 1) << kLevelShift;
inline constexpr std::uint32_t kCutIndexMask = 15;
[[gnu::always_inline]] constexpr std::uint32_t level_word(std::uint32_t level) noexcept {
  return level << kLevelShift | (kCutBitsPerLevel * level & kCutIndexMask);
}

[[gnu::always_inline]] inline __m512i all_words(std::uint32_t word) noexcept {
  return _mm512_set1_epi16(static_cast<short>(word));
}

// Two vectors of values, their residuals added, and which of them there are.
struct Pair {
  __m512i bits[2];
  __mmask16 present[2];
};

// What becomes of them.
struct Classified32 {
  __m512i kept[2];      // bits as a decoder will see them
  __mmask16 some[2];    // not +0
  __m512i exponents;    // words: of what is kept, kExponentShift up
  __m512i levels;       // words, as level_word() has them
  __mmask32 zeros = 0;  // words
  __mmask32 tiny = 0;   // words: of exponent 0, and kept
};

// The mask of words that belongs to those of two vectors.
[[gnu::always_inline]] inline __mmask32 in_pairs(const __mmask16 (&of)[2]) noexcept {
  return _pdep_u32(of[0], 0x55555555U) | _pdep_u32(of[1], 0xAAAAAAAAU);
}

// Words, kExponentShift up.
[[gnu::always_inline]] inline __m512i exponents_of(const __m512i (&bits)[2]) noexcept {
  const __m512i upper = _mm512_mask_blend_epi16(0xAAAAAAAAU, _mm512_srli_epi32(bits[0], 16), bits[1]);
  return _mm512_and_si512(upper, all_words(kExponentWord));
}

// Sorts values by a rule. kWhole: nothing is cut.
template <Keep kKeep, bool kWhole>
class Classifier32 {
 public:
  [[gnu::always_inline]] explicit Classifier32(const Rule& rule) noexcept {
    alignas(64) std::uint16_t levels[kFarDistance + 1];
    for (std::int32_t distance = 0; distance <= kFarDistance; ++distance) {
      levels[distance] = static_cast<std::uint16_t>(
          level_word(kKeep == Keep::kSignificance ? significance_level(distance, rule.step) : rule.level));
    }
    levels_ = _mm512_load_si512(levels);
    alignas(64) std::uint32_t lows[kCutIndexMask + 1] = {};
    alignas(64) std::uint32_t units[kCutIndexMask + 1] = {};
    for (std::uint32_t level = 1; level < kLevels; ++level) {
      const std::uint32_t unit = 1U << kCutBitsPerLevel * level;
      lows[level_word(level) & kCutIndexMask] = unit - 1;
      units[level_word(level) & kCutIndexMask] = unit;
    }
    lows_ = _mm512_load_si512(lows);
    units_ = _mm512_load_si512(units);
  }

  // Words, as level_word() has them. Of no use where all are 0, and then it does nothing.
  // `significance` may be null unless it decides: of the first sixteen, and of the others.
  [[gnu::always_inline]] __m512i levels(const Pair& pair,
                                        const float* const (&significance)[2]) const noexcept {
    if constexpr (kWhole) return _mm512_setzero_si512();
    const __m512i exponents = exponents_of(pair.bits);
    const __m512i one = all_words(1U << kExponentShift);
    const __mmask32 cuttable =
        _mm512_cmplt_epu16_mask(_mm512_sub_epi16(exponents, one), all_words(kHighestCut << kExponentShift));
    if constexpr (kKeep != Keep::kSignificance) return _mm512_maskz_mov_epi16(cuttable, levels_);
    const __m512i seen_bits[2] = {_mm512_maskz_loadu_epi32(pair.present[0], significance[0]),
                                  _mm512_maskz_loadu_epi32(pair.present[1], significance[1])};
    const __m512i seen = exponents_of(seen_bits);
    __m512i distance = _mm512_subs_epu16(_mm512_add_epi16(seen, one), exponents);
    distance = _mm512_min_epu16(_mm512_srli_epi16(distance, kExponentShift), all_words(kFarDistance));
    const __mmask32 special = _mm512_cmpeq_epi16_mask(seen, all_words(kExponentWord));
    if (special != 0) [[unlikely]]
      distance = _mm512_mask_mov_epi16(distance, special, special_distances(seen_bits));
    return _mm512_maskz_permutexvar_epi16(cuttable, distance, levels_);
  }

  // What is kept of values that have these levels.
  [[gnu::always_inline]] Classified32 keep(const Pair& pair, __m512i levels) const noexcept {
    if constexpr (kKeep == Keep::kEverything) return keep_all(pair);
    Classified32 classified;
    classified.levels = levels;
#pragma GCC unroll 2
    for (unsigned i = 0; i < 2; ++i) {
      const __m512i bits = pair.bits[i];
      const __mmask16 normal =
          _mm512_test_epi32_mask(bits, _mm512_set1_epi32(static_cast<int>(kExponentMask)));
      classified.some[i] = normal;
      classified.kept[i] = kWhole ? _mm512_maskz_mov_epi32(normal, bits)
                                  : rounded(bits, i == 0 ? levels : _mm512_srli_epi32(levels, 16), normal);
    }
    classified.exponents = exponents_of(classified.kept);
    classified.zeros = _mm512_testn_epi16_mask(classified.exponents, classified.exponents);
    return classified;
  }

 private:
  [[gnu::always_inline]] static Classified32 keep_all(const Pair& pair) noexcept {
    Classified32 classified;
    for (unsigned i = 0; i < 2; ++i) {
      classified.kept[i] = pair.bits[i];
      classified.some[i] = _mm512_test_epi32_mask(pair.bits[i], pair.bits[i]);
    }
    classified.exponents = exponents_of(pair.bits);
    const __mmask32 some = in_pairs(classified.some);
    classified.zeros = ~some;
    classified.tiny = _mm512_mask_testn_epi16_mask(some, classified.exponents, classified.exponents);
    return classified;
  }

  // Of those that are Inf or NaN.
  [[gnu::always_inline]] static __m512i special_distances(const __m512i (&significance)[2]) noexcept {
    const auto of = [](__m512i bits) {
      const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(kMagnitudeMask));
      const __mmask16 infinite =
          _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(static_cast<int>(kExponentMask)));
      return _mm512_maskz_set1_epi32(infinite, kFarDistance);
    };
    return _mm512_or_si512(of(significance[0]), _mm512_slli_epi32(of(significance[1]), 16));
  }

  // To nearest, ties to even; a carry goes into the exponent. +0 for what isn't normal. Of `level` only the
  // index of the cut is looked at.
  [[gnu::always_inline]] __m512i rounded(__m512i bits, __m512i level, __mmask16 normal) const noexcept {
    const __m512i low = _mm512_permutexvar_epi32(level, lows_);
    const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_permutexvar_epi32(level, units_));
    const __m512i half = _mm512_add_epi32(bits, _mm512_srli_epi32(low, 1));
    const __m512i up = _mm512_mask_add_epi32(half, odd, half, _mm512_set1_epi32(1));
    return _mm512_maskz_andnot_epi32(normal, low, up);
  }

  __m512i levels_;  // words, by distance
  __m512i lows_;    // the bits that a cut clears
  __m512i units_;   // the lowest bit that it leaves; 0 if there is none
};

// Sixteen of in + residual.
template <bool kResidual>
[[gnu::always_inline]] inline __m512i input_of(const Values& values, std::uint32_t at,
                                               __mmask16 present) noexcept {
  const __m512 in = _mm512_maskz_loadu_ps(present, values.in + at);
  if constexpr (!kResidual) return _mm512_castps_si512(in);
  return _mm512_castps_si512(_mm512_add_ps(in, _mm512_maskz_loadu_ps(present, values.residual + at)));
}

// 32 values from `at` on. kTail: as far as there are so many.
template <bool kResidual, bool kTail>
[[gnu::always_inline]] inline Pair pair_of(const Values& values, std::uint32_t at) noexcept {
  Pair pair;
  for (unsigned i = 0; i < 2; ++i) {
    pair.present[i] = kTail ? first_lanes(values.count, at + 16 * i) : 0xFFFF;
    pair.bits[i] = input_of<kResidual>(values, at + 16 * i, pair.present[i]);
  }
  return pair;
}

// Leaves in the residual what the cut took of them.
template <bool kResidual>
[[gnu::always_inline]] inline void keep_left_over(const Values& values, std::uint32_t at, const Pair& pair,
                                                  const Classified32& classified) noexcept {
  if constexpr (!kResidual) return;
  const __m512i special = _mm512_set1_epi32(static_cast<int>(kExponentMask));
#pragma GCC unroll 2
  for (unsigned i = 0; i < 2; ++i) {
    const __m512i bits = pair.bits[i];
    const __mmask16 finite = _mm512_cmpneq_epi32_mask(_mm512_and_si512(bits, special), special);
    const __m512 left =
        _mm512_maskz_sub_ps(finite, _mm512_castsi512_ps(bits), _mm512_castsi512_ps(classified.kept[i]));
    _mm512_mask_storeu_ps(values.residual + at + 16 * i, pair.present[i], left);
  }
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
