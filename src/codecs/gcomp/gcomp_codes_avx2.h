// What values become when they are encoded for AVX2: gcomp_encode_ops.h for vectors. What is kept of each,
// and its code. Masks are words of all ones or zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx2.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

// In each word of what the classifier gives: the level above the number of bits that are cut.
constexpr unsigned kLevelShift = 5;
constexpr std::uint32_t kCutMask = 31;

struct Classified8 {
  __m256i kept;   // bits as a decoder will see them
  __m256i level;  // 32 * level + bits cut
  __m256i some;   // mask: not +0
};

[[gnu::always_inline]] inline __m256i exponents_of(__m256i bits) noexcept {
  return _mm256_srli_epi32(_mm256_slli_epi32(bits, 1), kMantissaBits + 1);
}

// Sorts values by a rule. kWhole: nothing is cut, and signs and mantissas are in bytes.
template <Keep kKeep, bool kWhole>
class Classifier8 {
 public:
  [[gnu::always_inline]] explicit Classifier8(const Rule& rule) noexcept
      : level_(all_words(rule.level << kLevelShift | rule.precision.cut_at(rule.level))),
        highest_cut_(rule.precision.highest_cut),
        unused_(rule.precision.unused),
        bits_(rule.precision.step),
        step_(rule.step),
        share_((127 + bits_ * step_) / (bits_ * step_)),
        most_((kLevels - 1) / step_ * step_ * bits_) {}

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
          _mm256_andnot_si256(_mm256_cmpgt_epi32(exponent, all_words(highest_cut_)), normal);
      const __m256i lowest = all_words(unused_);
      const __m256i level = _mm256_blendv_epi8(lowest, levels(exponent, significance), cuttable);
      return {_mm256_and_si256(normal, rounded(bits, level)), level, normal};
    }
  }

 private:
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
    distance = _mm256_sub_epi32(distance, all_words(unused_));
    distance = _mm256_min_epi32(_mm256_max_epi32(distance, _mm256_setzero_si256()), all_words(most_));
    // All products stay within 16 bits.
    const __m256i cuts = _mm256_srli_epi32(_mm256_mullo_epi16(distance, all_words(share_)), 7);
    const __m256i level = _mm256_mullo_epi16(cuts, all_words(step_));
    const __m256i cut = _mm256_add_epi32(_mm256_mullo_epi16(level, all_words(bits_)), all_words(unused_));
    return _mm256_or_si256(_mm256_slli_epi32(level, kLevelShift), cut);
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
  std::uint32_t highest_cut_;
  std::uint32_t unused_;  // of the Precision
  std::uint32_t bits_;    // from one of its levels to the next
  std::uint32_t step_;    // of the rule: its levels are multiples
  // x * share_ / 128 is x / (bits_ * step_), rounded down: exact for divisors of 1, 2, 3 and 6, and x
  // below 35.
  std::uint32_t share_;
  std::uint32_t most_;  // bits from the lowest level to the highest
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

// 2^(8 - i); 0 from 9 on, and for 0, as it has no byte.
constexpr std::uint8_t kPowers[16] = {0, 128, 64, 32, 16, 8, 4, 2, 1};

// How a block's codes are looked up and joined: 16 bits for each, from the highest on the code, the bits of
// sign and mantissa behind it in steps, and its length.
constexpr unsigned kLeftShift = 8;
constexpr unsigned kStepsShift = 4;
constexpr std::uint32_t kHalfMask = 15;  // of steps and of lengths

// What a table has for each slot, in that form.
struct SlotCodes {
  alignas(32) std::uint16_t of[kSlots];
  std::uint16_t escape = 0;  // no other slot's own
  std::uint32_t base = 0;    // exponent of row 0
};

void make_codes(const EncodeTable& table, SlotCodes& codes) noexcept {
  const __m256i powers = byte_table(kPowers);
  for (std::uint32_t i = 0; i < kSlots; i += kVectorHalves) {
    const __m256i entry = load_words(table.entry + i);
    const __m256i length = _mm256_and_si256(entry, all_halves(kEntryLengthMask));
    const __m256i code =
        _mm256_and_si256(_mm256_srli_epi16(entry, kEntryCodeShift), all_halves(kEntryCodeMask));
    const __m256i left = _mm256_mullo_epi16(code, _mm256_shuffle_epi8(powers, length));
    const __m256i steps = _mm256_srli_epi16(entry, kEntryStepsShift);
    const __m256i low = _mm256_or_si256(_mm256_slli_epi16(steps, kStepsShift), length);
    store_words(codes.of + i, _mm256_or_si256(_mm256_slli_epi16(left, kLeftShift), low));
  }
  codes.escape = codes.of[kEscapeSlot];
  codes.base = table.base;
}

// 32 exponents, a byte each, as rows: 0 for +0, kEscapeSlot for those outside the window.
[[gnu::always_inline]] inline __m256i rows_of(__m256i exponents, std::uint32_t base) noexcept {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i above = _mm256_min_epu8(_mm256_subs_epu8(exponents, all_bytes(base)), all_bytes(kEscapeSlot));
  const __m256i below =
      _mm256_andnot_si256(_mm256_cmpeq_epi8(exponents, zero), _mm256_cmpeq_epi8(above, zero));
  return _mm256_or_si256(above, _mm256_and_si256(below, all_bytes(kEscapeSlot)));
}

// The codes of values that all have one level, for 32 at a time.
class RowCodes {
 public:
  [[gnu::always_inline]] RowCodes(const SlotCodes& codes, std::uint32_t level) noexcept
      : RowCodes(Bytes(codes, level), codes.base) {}

  // `exponents` in the order in which bytes are unpacked to halves in the order of values.
  [[gnu::always_inline]] void operator()(__m256i exponents, std::uint16_t* entries) const noexcept {
    const __m256i rows = rows_of(exponents, base_);
    const __m256i low = lows_(rows);
    const __m256i high = highs_(rows);
    store_words(entries, _mm256_unpacklo_epi8(low, high));
    store_words(entries + kVectorHalves, _mm256_unpackhi_epi8(low, high));
  }

 private:
  struct Bytes {
    [[gnu::always_inline]] Bytes(const SlotCodes& codes, std::uint32_t level) noexcept {
      for (std::uint32_t row = 0; row < kRows; ++row) {
        const std::uint32_t half = codes.of[row - 1 < kWindow ? level * kRows + row : row];
        low[row] = static_cast<std::uint8_t>(half);
        high[row] = static_cast<std::uint8_t>(half >> 8);
      }
    }
    std::uint8_t low[kRows];
    std::uint8_t high[kRows];
  };

  [[gnu::always_inline]] RowCodes(const Bytes& bytes, std::uint32_t base) noexcept
      : lows_(bytes.low), highs_(bytes.high), base_(base) {}

  Table32 lows_;
  Table32 highs_;
  std::uint32_t base_;
};

// The levels of 32 values, a byte each, and what is kept of eight.
class Levels {
 public:
  [[gnu::always_inline]] explicit Levels(const Rule& rule) noexcept : Levels(Bytes(rule)) {}

  // By the distance of a significance's exponent from a value's. 0xFF for a value that is +0.
  [[gnu::always_inline]] __m256i operator()(__m256i exponents, __m256i seen) const noexcept {
    const __m256i below = _mm256_sub_epi8(exponents, all_bytes(1));
    const __m256i distance = _mm256_min_epu8(_mm256_subs_epu8(seen, below), all_bytes(kFarDistance));
    return _mm256_or_si256(of_distance_(distance), _mm256_cmpeq_epi8(exponents, _mm256_setzero_si256()));
  }

  // To nearest, ties to even; a carry goes into the exponent. `levels`: words, -1 for +0.
  [[gnu::always_inline]] __m256i keep(__m256i bits, __m256i levels) const noexcept {
    const __m256i low = _mm256_permutevar8x32_epi32(lows_, levels);
    const __m256i unit = _mm256_permutevar8x32_epi32(units_, levels);
    const __m256i odd = _mm256_cmpeq_epi32(_mm256_and_si256(bits, unit), unit);
    const __m256i up = _mm256_sub_epi32(_mm256_add_epi32(bits, _mm256_srli_epi32(low, 1)), odd);
    return _mm256_andnot_si256(_mm256_srai_epi32(levels, 31), _mm256_andnot_si256(low, up));
  }

 private:
  struct Bytes {
    [[gnu::always_inline]] explicit Bytes(const Rule& rule) noexcept {
      for (std::int32_t distance = 0; distance <= kFarDistance; ++distance) {
        of_distance[distance] = static_cast<std::uint8_t>(significance_level(distance, rule));
      }
      for (std::uint32_t level = 0; level < kLevels; ++level) {
        const std::uint32_t cut = rule.precision.cut_at(level);
        lows[level] = (1U << cut) - 1;
        // What no number but a NaN has, where nothing is cut.
        units[level] = cut == 0 ? ~0U : 1U << cut;
      }
    }
    std::uint8_t of_distance[kFarDistance + 1];
    alignas(32) std::uint32_t lows[kLevels];
    alignas(32) std::uint32_t units[kLevels];
  };

  [[gnu::always_inline]] explicit Levels(const Bytes& bytes) noexcept
      : of_distance_(bytes.of_distance), lows_(load_words(bytes.lows)), units_(load_words(bytes.units)) {}

  Table32 of_distance_;
  __m256i lows_;   // the bits that each level clears
  __m256i units_;  // the lowest bit that it leaves
};

// 32 numbers below 256, a byte each: with kUnpacked in the order in which bytes are unpacked to halves in the
// order of values.
template <bool kUnpacked>
[[gnu::always_inline]] inline __m256i packed(__m256i a, __m256i b, __m256i c, __m256i d) noexcept {
  const __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
  const __m256i places =
      kUnpacked ? _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7) : _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(bytes, places);
}

// The exponents of 32 values.
template <bool kUnpacked>
[[gnu::always_inline]] inline __m256i packed_exponents(const void* values) noexcept {
  const auto of = [values](unsigned i) {
    return exponents_of(load_words(static_cast<const std::byte*>(values) + i * kVectorWords * kValueBytes));
  };
  return packed<kUnpacked>(of(0), of(1), of(2), of(3));
}

template <bool kEverything>
[[gnu::always_inline]] inline __m256i slots_of(const Classified8& values, __m256i base) noexcept {
  const __m256i row = _mm256_sub_epi32(exponents_of(values.kept), base);
  // 1 to kWindow.
  const __m256i within = _mm256_and_si256(_mm256_cmpgt_epi32(row, _mm256_setzero_si256()),
                                          _mm256_cmpgt_epi32(all_words(kEscapeSlot), row));
  const __m256i level = _mm256_andnot_si256(all_words(kCutMask), values.level);
  const __m256i slot = _mm256_blendv_epi8(all_words(kEscapeSlot), _mm256_or_si256(level, row), within);
  if constexpr (!kEverything) return _mm256_and_si256(values.some, slot);
  const __m256i tiny = _mm256_cmpgt_epi32(values.level, _mm256_setzero_si256());
  return _mm256_and_si256(values.some, _mm256_blendv_epi8(slot, all_words(kTinySlot), tiny));
}

}  // namespace

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
