// Encoding for AVX2: blocks of 64 lanes. Shorter ones are left to the reference.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_encode_ops.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx2.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

// What eight values become: gcomp_encode_ops.h for AVX2. Masks are words of all ones or zeros.

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
          _mm256_andnot_si256(_mm256_cmpgt_epi32(exponent, all_words(kHighestCut)), normal);
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

  __m256i level_;         // where all have the same
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

// The histogram: which of its counts the values of a line belong to.
struct Line {
  alignas(32) std::uint32_t of[kLineElements];
};

template <Keep kKeep, bool kWhole, bool kResidual>
void count_values(const Values& chunk, std::uint32_t* counts) noexcept {
  const Classifier8<kKeep, kWhole> classify(chunk.rule);
  count_by<kKeep>(
      chunk,
      [&](std::uint32_t begin) {
        Line index;
#pragma GCC unroll 2
        for (std::uint32_t i = 0; i < kLineElements; i += kVectorWords) {
          const float* const significance =
              kKeep == Keep::kSignificance ? chunk.significance + begin + i : nullptr;
          const Classified8 values = classify(input_of<kResidual>(chunk, begin + i), significance);
          const __m256i level = _mm256_slli_epi32(_mm256_srli_epi32(values.level, kLevelShift), 8);
          store_words(index.of + i, _mm256_or_si256(level, exponents_of(values.kept)));
        }
        return index;
      },
      counts);
}

void histogram(const Values& chunk, std::uint32_t* counts) {
  for_values(chunk, [&]<Keep kKeep, bool kWhole, bool kResidual>() {
    count_values<kKeep, kWhole, kResidual>(chunk, counts);
  });
}

constexpr Places kPlaces = make_places();
constexpr HalfPlaces kHalfPlaces = make_half_places();

constexpr std::uint32_t kAhead = 1024;  // elements before the current stretch that are fetched early

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

// A block on its way out: as in the reference, but of a lane of codes the 16 bits that leave next, and the
// `held` bits behind them, highest first. `held` is in each byte of 16 bits.
struct Writer {
  alignas(32) std::uint16_t leaving[kMaxLanes] = {};
  alignas(32) std::uint16_t codes[kMaxLanes] = {};
  alignas(32) std::uint16_t held[kMaxLanes] = {};
  alignas(32) std::uint32_t mantissas[kMaxMantissaLanes] = {};
  alignas(32) std::uint32_t filled[kMaxMantissaLanes] = {};
  __m256i any;   // all kept bits, or-ed
  __m256i step;  // of the values' Precision
};

struct Stretch {
  alignas(32) std::uint32_t kept[kMaxStretch];
  alignas(32) std::uint8_t slots[kMaxStretch];
  alignas(32) std::uint16_t entries[kMaxStretch];
  const void* values = kept;  // what is kept
  bool dense = false;         // none is +0 or tiny
  bool last = false;          // there are fewer values
};

// What stays the same for all stretches of a block.
template <Keep kKeep, bool kWhole>
struct Coder {
  [[gnu::always_inline]] Coder(const Rule& rule, const SlotCodes& codes) noexcept
      : classify(rule),
        of_slot(codes),
        of_row(codes, rule.level),
        levels(rule),
        level(all_words(rule.level)) {}

  Classifier8<kKeep, kWhole> classify;
  const SlotCodes& of_slot;
  RowCodes of_row;
  Levels levels;
  __m256i level;  // where all have the same
};

// The words that `leave` names, brought together.
[[gnu::always_inline]] inline __m256i gathered(__m256i words, std::uint32_t leave) noexcept {
  return _mm256_permutevar8x32_epi32(words, places_of(kPlaces.gather[leave]));
}

// Sign and mantissa in the lower 24 bits.
[[gnu::always_inline]] inline __m256i sign_mantissas(__m256i kept) noexcept {
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(kept, 8), all_words(kSignBit >> 8));
  return _mm256_or_si256(sign, _mm256_and_si256(kept, all_words(kMantissaMask)));
}

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

[[gnu::always_inline]] inline void look_up(const SlotCodes& codes, Stretch& stretch) noexcept {
#pragma GCC unroll 16
  for (unsigned i = 0; i < kMaxStretch; ++i) {
    std::uint32_t slot = stretch.slots[i];
    // Keeps compilers from making vectors of several, word by word.
    asm("" : "+r"(slot));
    stretch.entries[i] = codes.of[slot];
  }
}

// Classifies the values from `begin` on and looks up their codes.
template <Keep kKeep, bool kWhole, bool kResidual>
[[gnu::always_inline]] inline void code_each(const Coder<kKeep, kWhole>& coder, const Values& block,
                                             std::uint32_t begin, Writer& writer, Stretch& stretch) noexcept {
  const __m256i base = all_words(coder.of_slot.base);
  __m256i any = writer.any;
  for (unsigned i = 0; i < kMaxStretch; i += kBytesAtOnce) {
    __m256i slots[4];
#pragma GCC unroll 4
    for (unsigned nth = 0; nth < 4; ++nth) {
      const unsigned at = i + kVectorWords * nth;
      const std::uint32_t from = begin + at;
      const __m256i bits = input_of<kResidual>(block, from);
      const float* const significance = kKeep == Keep::kSignificance ? block.significance + from : nullptr;
      const Classified8 values = coder.classify(bits, significance);
      keep_left_over<kResidual>(block, from, bits, values.kept);
      store_words(stretch.kept + at, values.kept);
      any = _mm256_or_si256(any, values.kept);
      slots[nth] = slots_of < kKeep == Keep::kEverything > (values, base);
    }
    store_words(stretch.slots + i, packed<false>(slots[0], slots[1], slots[2], slots[3]));
  }
  writer.any = any;
  look_up(coder.of_slot, stretch);
}

// What is kept of a stretch of a whole chunk that isn't dense; gives tiny values their code.
template <Keep kKeep, bool kWhole>
void keep_whole(const Coder<kKeep, kWhole>& coder, const Values& block, std::uint32_t begin, Writer& writer,
                Stretch& stretch) noexcept {
  __m256i any = writer.any;
  for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
    const Classified8 values = coder.classify(input_of<false>(block, begin + i), nullptr);
    store_words(stretch.kept + i, values.kept);
    any = _mm256_or_si256(any, values.kept);
    if constexpr (kKeep != Keep::kEverything) continue;
    std::uint32_t tiny = high_bits(_mm256_cmpgt_epi32(values.level, _mm256_setzero_si256()));
    for (; tiny != 0; tiny &= tiny - 1) stretch.entries[i + countr_zero(tiny)] = coder.of_slot.of[kTinySlot];
  }
  writer.any = any;
}

// Values of one level, 32 at a time. False if some have another, and nothing is coded.
template <Keep kKeep, bool kWhole>
[[gnu::always_inline]] inline bool code_at_one_level(const Coder<kKeep, kWhole>& coder, const Values& block,
                                                     std::uint32_t begin, Writer& writer,
                                                     Stretch& stretch) noexcept {
  const void* values = block.in + begin;
  if constexpr (!kWhole) {
    __m256i any = writer.any;
    __m256i highest = _mm256_setzero_si256();
    __m256i tiny = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
      const __m256i bits = input_of<false>(block, begin + i);
      const __m256i exponent = _mm256_and_si256(bits, all_words(kExponentMask));
      const __m256i flushed = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
      __m256i kept = bits;
      if constexpr (kKeep == Keep::kEverything) {
        tiny = _mm256_or_si256(tiny, _mm256_and_si256(flushed, bits));
      } else {
        highest = _mm256_max_epi32(highest, exponent);
        kept = _mm256_andnot_si256(flushed, coder.levels.keep(bits, coder.level));
      }
      any = _mm256_or_si256(any, kept);
      store_words(stretch.kept + i, kept);
    }
    const __m256i above = _mm256_cmpgt_epi32(highest, all_words(kHighestCut << kMantissaBits));
    const __m256i other = _mm256_or_si256(above, tiny);
    if (_mm256_testz_si256(other, other) == 0) [[unlikely]]
      return false;
    writer.any = any;
    values = stretch.kept;
  }
  __m256i zeros = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (unsigned i = 0; i < kMaxStretch; i += kBytesAtOnce) {
    const __m256i exponents = packed_exponents<true>(static_cast<const std::byte*>(values) + i * kValueBytes);
    zeros = _mm256_or_si256(zeros, _mm256_cmpeq_epi8(exponents, _mm256_setzero_si256()));
    coder.of_row(exponents, stretch.entries + i);
  }
  if constexpr (!kWhole) return true;
  stretch.dense = _mm256_testz_si256(zeros, zeros) != 0;
  if (stretch.dense) [[likely]] {
    writer.any = all_words(~0U);
    stretch.values = values;
    return true;
  }
  stretch.values = stretch.kept;
  keep_whole(coder, block, begin, writer, stretch);
  return true;
}

// Values whose significances decide, 32 at a time. False if there are exceptions, and nothing is coded.
template <Keep kKeep, bool kWhole>
[[gnu::always_inline]] inline bool code_by_significance(const Coder<kKeep, kWhole>& coder,
                                                        const Values& block, std::uint32_t begin,
                                                        Writer& writer, Stretch& stretch) noexcept {
  alignas(32) std::int8_t levels[kMaxStretch];
  __m256i exceptions = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (unsigned i = 0; i < kMaxStretch; i += kBytesAtOnce) {
    const __m256i exponents = packed_exponents<false>(block.in + begin + i);
    const __m256i seen = packed_exponents<false>(block.significance + begin + i);
    store_words(levels + i, coder.levels(exponents, seen));
    const __m256i above = _mm256_subs_epu8(exponents, all_bytes(kHighestCut));
    exceptions = _mm256_or_si256(exceptions, _mm256_or_si256(above, _mm256_cmpeq_epi8(seen, all_bytes(255))));
  }
  if (_mm256_testz_si256(exceptions, exceptions) == 0) [[unlikely]]
    return false;
  __m256i any = writer.any;
#pragma GCC unroll 4
  for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
    const __m256i level = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(levels + i)));
    const __m256i kept = coder.levels.keep(input_of<false>(block, begin + i), level);
    any = _mm256_or_si256(any, kept);
    store_words(stretch.kept + i, kept);
  }
  writer.any = any;
#pragma GCC unroll 4
  for (unsigned i = 0; i < kMaxStretch; i += kBytesAtOnce) {
    const __m256i rows = rows_of(packed_exponents<false>(stretch.kept + i), coder.of_slot.base);
    const __m256i outside = _mm256_or_si256(_mm256_cmpeq_epi8(rows, _mm256_setzero_si256()),
                                            _mm256_cmpeq_epi8(rows, all_bytes(kEscapeSlot)));
    const __m256i level =
        _mm256_and_si256(_mm256_slli_epi16(load_words(levels + i), 5), all_bytes(kSlots - kRows));
    store_words(stretch.slots + i, _mm256_or_si256(rows, _mm256_andnot_si256(outside, level)));
  }
  look_up(coder.of_slot, stretch);
  return true;
}

// Bits of sign and mantissa of eight values, in steps, in place.
[[gnu::always_inline]] inline __m256i steps_of(const Stretch& stretch, unsigned i) noexcept {
  const __m256i entries =
      _mm256_cvtepu16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(stretch.entries + i)));
  return _mm256_and_si256(entries, all_words(kHalfMask << kStepsShift));
}

// Eight lanes of mantissas, in registers.
struct MantissaLanes {
  __m256i x;
  __m256i filled;
  __m256i step;
};

// Values i to i + 7 of a stretch.
[[gnu::always_inline]] inline std::byte* push_mantissas(const Stretch& stretch, unsigned i,
                                                        MantissaLanes& lanes, std::byte* at) noexcept {
  const __m256i word_bits = all_words(kMantissaWordBits);
  const __m256i steps = _mm256_srli_epi32(steps_of(stretch, i), kStepsShift);
  const __m256i width = _mm256_mullo_epi16(steps, lanes.step);
  const __m256i value = _mm256_srlv_epi32(sign_mantissas(load_words(stretch.kept + i)),
                                          _mm256_sub_epi32(all_words(kSignMantissaBits), width));
  const __m256i sum = _mm256_add_epi32(lanes.filled, width);
  const __m256i rest = _mm256_and_si256(sum, all_words(kMantissaWordBits - 1));
  const __m256i older = _mm256_sllv_epi32(lanes.x, _mm256_sub_epi32(word_bits, lanes.filled));
  const __m256i words = _mm256_or_si256(older, _mm256_srlv_epi32(value, rest));
  const std::uint32_t leave = high_bits(_mm256_cmpgt_epi32(sum, all_words(kMantissaWordBits - 1)));
  store_words(at, gathered(words, leave));
  at += popcount(leave) * kMantissaWordBytes;
  lanes = {_mm256_or_si256(_mm256_sllv_epi32(lanes.x, width), value), rest, lanes.step};
  return at;
}

// The mantissas of a cut chunk's stretch.
[[gnu::always_inline]] inline std::byte* push_mantissas(const Stretch& stretch, Writer& writer,
                                                        std::byte* at) noexcept {
  MantissaLanes lanes[2];
#pragma GCC unroll 2
  for (unsigned i = 0; i < 2; ++i) {
    lanes[i] = {load_words(writer.mantissas + kVectorWords * i), load_words(writer.filled + kVectorWords * i),
                writer.step};
  }
#pragma GCC unroll 8
  for (unsigned i = 0; i < kMaxStretch; i += kMaxMantissaLanes) {
    at = push_mantissas(stretch, i, lanes[0], at);
    at = push_mantissas(stretch, i + kVectorWords, lanes[1], at);
  }
#pragma GCC unroll 2
  for (unsigned i = 0; i < 2; ++i) {
    store_words(writer.mantissas + kVectorWords * i, lanes[i].x);
    store_words(writer.filled + kVectorWords * i, lanes[i].filled);
  }
  return at;
}

// The mantissas of a whole chunk's stretch.
[[gnu::always_inline]] inline std::byte* append_mantissas(const Stretch& stretch, std::byte* at) noexcept {
  if (stretch.dense) [[likely]] {
#pragma GCC unroll 16
    for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
      const __m256i kept = load_words(static_cast<const std::byte*>(stretch.values) + i * kValueBytes);
      write_three_bytes(sign_mantissas(kept), at + i * kSignMantissaBytes);
    }
    return at + kMaxStretch * kSignMantissaBytes;
  }
#pragma GCC unroll 2
  for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
    const std::uint32_t some = high_bits(_mm256_cmpgt_epi32(steps_of(stretch, i), _mm256_setzero_si256()));
    write_three_bytes(gathered(sign_mantissas(load_words(stretch.kept + i)), some), at);
    at += popcount(some) * kSignMantissaBytes;
  }
  return at;
}

// Appends those of sixteen numbers of 16 bits that `leave` names.
[[gnu::always_inline]] inline std::byte* append_halves(__m256i leave, __m256i halves,
                                                       std::byte* at) noexcept {
  const __m128i low = _mm256_castsi256_si128(leave);
  const auto mask =
      static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_packs_epi16(low, _mm256_extracti128_si256(leave, 1))));
  const auto append = [&at](__m128i eight, std::uint32_t leaving) {
    const __m128i together = _mm_shuffle_epi8(eight, bytes_of(kHalfPlaces.gather[leaving]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), together);
    at += popcount(leaving) * kWordBytes;
  };
  append(_mm256_castsi256_si128(halves), mask & 0xFF);
  append(_mm256_extracti128_si256(halves, 1), mask >> 8);
  return at;
}

// Two codes for each lane: that of row 0, and above it that of row 1. kTail: there may be none.
template <bool kTail>
[[gnu::always_inline]] inline std::byte* push_codes(const Stretch& stretch, Writer& writer,
                                                    std::byte* at) noexcept {
  const __m256i powers = byte_table(kPowers);
  const __m256i zero = _mm256_setzero_si256();
  const __m256i length_mask = all_halves(kHalfMask);
  const __m256i left_mask = all_halves(0xFF00);
  const __m256i both_bytes = _mm256_setr_epi8(0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14,  //
                                              0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14);
#pragma GCC unroll 4
  for (unsigned lane = 0; lane < kMaxLanes; lane += kVectorHalves) {
    const __m256i first = load_words(stretch.entries + lane);
    const __m256i second = load_words(stretch.entries + kMaxLanes + lane);
    const __m256i above = _mm256_and_si256(second, length_mask);
    const __m256i length = _mm256_add_epi16(_mm256_and_si256(first, length_mask), above);
    __m256i below =
        _mm256_mullo_epi16(_mm256_srli_epi16(first, kLeftShift), _mm256_shuffle_epi8(powers, above));
    if constexpr (kTail) {
      below = _mm256_blendv_epi8(below, _mm256_and_si256(first, left_mask), _mm256_cmpeq_epi16(above, zero));
    }
    const __m256i code = _mm256_or_si256(_mm256_and_si256(second, left_mask), below);
    const __m256i held = load_words(writer.held + lane);
    // 2^(16 - held), and 0 for a lane that holds nothing: then the code stays where it is.
    const __m256i power = _mm256_shuffle_epi8(powers, _mm256_add_epi8(held, all_halves(0x00F8)));
    const __m256i stays = _mm256_and_si256(code, _mm256_cmpeq_epi16(power, zero));
    const __m256i all = _mm256_or_si256(_mm256_or_si256(load_words(writer.codes + lane), stays),
                                        _mm256_mulhi_epu16(code, power));
    const __m256i sum = _mm256_add_epi8(held, _mm256_shuffle_epi8(length, both_bytes));
    const __m256i leave = _mm256_cmpgt_epi16(sum, all_halves(0x0F0F));
    const __m256i leaving = load_words(writer.leaving + lane);
    at = append_halves(leave, leaving, at);
    store_words(writer.leaving + lane, _mm256_blendv_epi8(leaving, all, leave));
    store_words(writer.codes + lane, _mm256_blendv_epi8(all, _mm256_mullo_epi16(code, power), leave));
    store_words(writer.held + lane, _mm256_and_si256(sum, all_halves(0x0F0F)));
  }
  return at;
}

// Exponents of escaped values, in their order.
std::byte* append_escapes(const Stretch& stretch, std::uint16_t escape, std::byte* at) noexcept {
  const auto* const values = static_cast<const std::byte*>(stretch.values);
  for (unsigned i = 0; i < kMaxStretch; i += kVectorHalves) {
    const __m256i escapes = _mm256_cmpeq_epi16(load_words(stretch.entries + i), all_halves(escape));
    // Two bits for each.
    for (auto left = static_cast<std::uint32_t>(_mm256_movemask_epi8(escapes)); left != 0;) {
      const unsigned nth = countr_zero(left) / 2;
      left &= ~(3U << 2 * nth);
      const auto bits = load_le<std::uint32_t>(values + (i + nth) * kValueBytes);
      *at++ = static_cast<std::byte>((bits & kMagnitudeMask) >> kMantissaBits);
    }
  }
  return at;
}

[[gnu::always_inline]] inline bool has_escapes(const Stretch& stretch, std::uint16_t escape) noexcept {
  __m256i any = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (unsigned i = 0; i < kMaxStretch; i += kVectorHalves) {
    any = _mm256_or_si256(any, _mm256_cmpeq_epi16(load_words(stretch.entries + i), all_halves(escape)));
  }
  return _mm256_testz_si256(any, any) == 0;
}

template <Keep kKeep, bool kWhole, bool kResidual>
[[gnu::always_inline]] inline void code_stretch(const Coder<kKeep, kWhole>& coder, const Values& block,
                                                std::uint32_t begin, std::uint32_t count, Writer& writer,
                                                Stretch& stretch) noexcept {
  bool coded = false;
  if constexpr (!kResidual && kKeep == Keep::kSignificance) {
    coded = code_by_significance(coder, block, begin, writer, stretch);
  } else if constexpr (!kResidual) {
    coded = code_at_one_level(coder, block, begin, writer, stretch);
  }
  if (!coded) code_each<kKeep, kWhole, kResidual>(coder, block, begin, writer, stretch);
  stretch.last = count < kMaxStretch;
  for (std::uint32_t i = count; i < kMaxStretch; ++i) stretch.entries[i] = 0;
}

template <bool kWhole>
[[gnu::always_inline]] inline std::byte* write_stretch(const Stretch& stretch, std::uint16_t escape,
                                                       Writer& writer, std::byte* at) noexcept {
  if constexpr (kWhole) {
    at = append_mantissas(stretch, at);
  } else {
    at = push_mantissas(stretch, writer, at);
  }
  if (stretch.last) [[unlikely]] {
    at = push_codes<true>(stretch, writer, at);
  } else {
    at = push_codes<false>(stretch, writer, at);
  }
  if (has_escapes(stretch, escape)) [[unlikely]]
    at = append_escapes(stretch, escape, at);
  return at;
}

void write_states(bool whole, const Writer& writer, std::byte* at) noexcept {
  for (unsigned lane = 0; lane < kMaxLanes; ++lane, at += kStateBytes) {
    const unsigned held = writer.held[lane] & kHalfMask;
    const std::uint32_t lower = std::uint32_t{writer.codes[lane]} >> (kWordBits - held);
    const std::uint32_t upper = (std::uint32_t{1} << kWordBits | writer.leaving[lane]) << held;
    store_le(at, upper | lower);
  }
  for (unsigned lane = 0; lane < kMaxMantissaLanes && !whole; ++lane, at += kStateBytes) {
    const std::uint32_t end = 1U << writer.filled[lane];
    store_le(at, end | (writer.mantissas[lane] & (end - 1)));
  }
}

template <bool kResidual>
[[gnu::always_inline]] inline void fetch_early(const Values& block, std::uint32_t begin) noexcept {
  if (begin < kAhead) return;
  for (unsigned i = 0; i < kMaxStretch; i += 16) {
    _mm_prefetch(reinterpret_cast<const char*>(block.in + begin - kAhead + i), _MM_HINT_T0);
    if (block.significance != nullptr) {
      _mm_prefetch(reinterpret_cast<const char*>(block.significance + begin - kAhead + i), _MM_HINT_T0);
    }
    if constexpr (kResidual) {
      _mm_prefetch(reinterpret_cast<const char*>(block.residual + begin - kAhead + i), _MM_HINT_T0);
    }
  }
}

// Writes each stretch when the next one has been coded: a vector can't be loaded at once from where its
// numbers were stored one by one.
template <Keep kKeep, bool kWhole, bool kResidual>
struct Encoder {
  Coder<kKeep, kWhole> coder;
  Writer writer;
  Stretch stretches[2];
  std::uint32_t coded = 0;

  [[gnu::always_inline]] std::byte* push(const Values& block, std::uint32_t begin, std::uint32_t count,
                                         std::byte* at) noexcept {
    fetch_early<kResidual>(block, begin);
    code_stretch<kKeep, kWhole, kResidual>(coder, block, begin, count, writer, stretches[coded % 2]);
    if (coded++ == 0) [[unlikely]]
      return at;
    return write_stretch<kWhole>(stretches[coded % 2], coder.of_slot.escape, writer, at);
  }

  [[gnu::always_inline]] std::byte* finish(std::byte* at) noexcept {
    at = write_stretch<kWhole>(stretches[(coded + 1) % 2], coder.of_slot.escape, writer, at);
    write_states(kWhole, writer, at);
    return at;
  }
};

template <Keep kKeep, bool kWhole, bool kResidual>
EncodedBlock encode_lanes(const Values& block, const EncodeTable& table, std::byte* out) noexcept {
  SlotCodes codes;
  make_codes(table, codes);
  Encoder<kKeep, kWhole, kResidual> encoder{{block.rule, codes}, {}, {}};
  encoder.writer.any = _mm256_setzero_si256();
  encoder.writer.step = all_words(block.rule.precision.step);
  std::byte* at = encode_by<kKeep, kResidual>(block, encoder, out);
  at = encoder.finish(at);
  const __m256i any = encoder.writer.any;
  return {static_cast<std::uint32_t>(at - out), _mm256_testz_si256(any, any) != 0};
}

EncodedBlock encode_block(const Values& block, const EncodeTable& table, std::byte* out) {
  if (lanes_for(block.count) < kMaxLanes) {
    return kernels_for(TargetId::kReference).encode_block(block, table, out);
  }
  return for_values(block, [&]<Keep kKeep, bool kWhole, bool kResidual>() {
    return encode_lanes<kKeep, kWhole, kResidual>(block, table, out);
  });
}

template <Keep kKeep, bool kWhole, bool kResidual>
void store_kept(const Values& values, std::byte* out) noexcept {
  const Classifier8<kKeep, kWhole> classify(values.rule);
  const std::uint32_t full = values.count / kVectorWords * kVectorWords;
  for (std::uint32_t at = 0; at < full; at += kVectorWords) {
    const __m256i bits = input_of<kResidual>(values, at);
    const float* const significance = kKeep == Keep::kSignificance ? values.significance + at : nullptr;
    const Classified8 classified = classify(bits, significance);
    keep_left_over<kResidual>(values, at, bits, classified.kept);
    store_words(out + at * kValueBytes, classified.kept);
  }
  kernels_for(TargetId::kReference).store_values(rest_of(values, full), out + full * kValueBytes);
}

void store_values(const Values& values, std::byte* out) {
  for_values(values, [&]<Keep kKeep, bool kWhole, bool kResidual>() {
    store_kept<kKeep, kWhole, kResidual>(values, out);
  });
}

}  // namespace

extern constexpr Kernels kKernels = {histogram, encode_block, store_values, decode_block, decode_stored};

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
