// Encoding for AVX-512, compiled again for VBMI2 (gcomp_vectors_avx512.h): blocks of 64 lanes. Shorter ones
// are left to the reference.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_encode_ops.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

// Classifies 32 values: gcomp_encode_ops.h for AVX-512. Exponent and level fit into 16 bits, so the rules
// handle 32 values at once, in words: the low half of double word i belongs to value i, the high half to
// value 16 + i.

// Exponents stay where they are in the upper half of a float.
constexpr unsigned kExponentShift = kMantissaBits - 16;
constexpr std::uint32_t kExponentWord = kExponentMask >> 16;

// In each word of a level: above its lowest 4 bits 32 times the level; and these are what a table of sixteen
// knows the level by, the number of bits cut without its highest.
constexpr unsigned kLevelShift = 5;
constexpr unsigned kLevelWord = (kLevels - 1) << kLevelShift;
constexpr std::uint32_t kCutIndexMask = 15;
[[gnu::always_inline]] constexpr std::uint32_t level_word(std::uint32_t level, Precision precision) noexcept {
  return level << kLevelShift | (precision.cut_at(level) & kCutIndexMask);
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

// Sorts values by a rule. kWhole: nothing is cut, and signs and mantissas are in bytes.
template <Keep kKeep, bool kWhole>
class Classifier32 {
 public:
  [[gnu::always_inline]] explicit Classifier32(const Rule& rule) noexcept {
    alignas(64) std::uint16_t levels[kFarDistance + 1];
    for (std::int32_t distance = 0; distance <= kFarDistance; ++distance) {
      levels[distance] = static_cast<std::uint16_t>(level_word(
          kKeep == Keep::kSignificance ? significance_level(distance, rule) : rule.level, rule.precision));
    }
    levels_ = _mm512_load_si512(levels);
    lowest_ = all_words(level_word(0, rule.precision));
    highest_cut_ = all_words(rule.precision.highest_cut << kExponentShift);
    alignas(64) std::uint32_t lows[kCutIndexMask + 1] = {};
    alignas(64) std::uint32_t units[kCutIndexMask + 1] = {};
    for (std::uint32_t level = 0; level < kLevels; ++level) {
      const std::uint32_t cut = rule.precision.cut_at(level);
      if (cut == 0) continue;
      lows[cut & kCutIndexMask] = (1U << cut) - 1;
      units[cut & kCutIndexMask] = 1U << cut;
    }
    lows_ = _mm512_load_si512(lows);
    units_ = _mm512_load_si512(units);
  }

  // Words, as level_word() makes them; not computed where all are 0.
  // `significance` may be null unless it decides: of the first sixteen, and of the others.
  [[gnu::always_inline]] __m512i levels(const Pair& pair,
                                        const float* const (&significance)[2]) const noexcept {
    if constexpr (kOneLevel<kKeep, kWhole>) return _mm512_setzero_si512();
    const __m512i exponents = exponents_of(pair.bits);
    const __m512i one = all_words(1U << kExponentShift);
    const __mmask32 cuttable = _mm512_cmplt_epu16_mask(_mm512_sub_epi16(exponents, one), highest_cut_);
    if constexpr (kKeep != Keep::kSignificance) return _mm512_mask_mov_epi16(lowest_, cuttable, levels_);
    const __m512i seen_bits[2] = {_mm512_maskz_loadu_epi32(pair.present[0], significance[0]),
                                  _mm512_maskz_loadu_epi32(pair.present[1], significance[1])};
    const __m512i seen = exponents_of(seen_bits);
    __m512i distance = _mm512_subs_epu16(_mm512_add_epi16(seen, one), exponents);
    distance = _mm512_min_epu16(_mm512_srli_epi16(distance, kExponentShift), all_words(kFarDistance));
    const __mmask32 special = _mm512_cmpeq_epi16_mask(seen, all_words(kExponentWord));
    if (special != 0) [[unlikely]]
      distance = _mm512_mask_mov_epi16(distance, special, special_distances(seen_bits));
    return _mm512_mask_permutexvar_epi16(lowest_, cuttable, distance, levels_);
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

  // To nearest, ties to even; a carry goes into the exponent. +0 for values that aren't normal. Only the
  // index of the cut in `level` matters.
  [[gnu::always_inline]] __m512i rounded(__m512i bits, __m512i level, __mmask16 normal) const noexcept {
    const __m512i low = _mm512_permutexvar_epi32(level, lows_);
    const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_permutexvar_epi32(level, units_));
    const __m512i half = _mm512_add_epi32(bits, _mm512_srli_epi32(low, 1));
    const __m512i up = _mm512_mask_add_epi32(half, odd, half, _mm512_set1_epi32(1));
    return _mm512_maskz_andnot_epi32(normal, low, up);
  }

  __m512i levels_;       // words, by distance
  __m512i lowest_;       // words: level 0
  __m512i highest_cut_;  // words, kExponentShift up
  __m512i lows_;         // the bits that a cut clears
  __m512i units_;        // the lowest bit that it leaves; 0 if there is none
};

// Sixteen of in + residual.
template <bool kResidual>
[[gnu::always_inline]] inline __m512i input_of(const Values& values, std::uint32_t at,
                                               __mmask16 present) noexcept {
  const __m512 in = _mm512_maskz_loadu_ps(present, values.in + at);
  if constexpr (!kResidual) return _mm512_castps_si512(in);
  return _mm512_castps_si512(_mm512_add_ps(in, _mm512_maskz_loadu_ps(present, values.residual + at)));
}

// 32 values from `at` on. kTail: there may be fewer.
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

// The histogram. Neighbours are often equal: several tables, so that one sum need not wait for the other.
constexpr unsigned kTables = 4;
template <bool kOne>
struct Counts {
  static constexpr std::uint32_t kUsed = kOne ? 512 : kCounts;  // one level, and tiny values
  alignas(64) std::uint16_t of[kTables][kUsed];
};

// The lines of two groups; what lies outside the chunk is not read.
template <Keep kKeep, bool kResidual>
struct TwoLines {
  [[gnu::always_inline]] TwoLines(const Values& chunk, std::uint32_t group, unsigned share) noexcept {
#pragma GCC unroll 2
    for (unsigned i = 0; i < 2; ++i) {
      fetch_sampled(chunk, group + i, share);
      std::uint32_t begin = sampled_element(group + i, share);
      values.present[i] = first_lanes(chunk.count, begin);
      if (values.present[i] == 0) begin = 0;
      values.bits[i] = input_of<kResidual>(chunk, begin, values.present[i]);
      significance[i] = kKeep == Keep::kSignificance ? chunk.significance + begin : nullptr;
    }
  }

  Pair values;
  const float* significance[2];
};

[[gnu::always_inline]] inline __m512i counts_of(const Classified32& values, bool one_level) noexcept {
  const __m512i exponents = _mm512_srli_epi16(values.exponents, kExponentShift);
  if (one_level) return _mm512_mask_mov_epi16(exponents, values.tiny, all_words(kTinyCount));
  const __m512i levels = _mm512_and_si512(values.levels, all_words(kLevelWord));
  return _mm512_or_si512(_mm512_slli_epi16(levels, 8 - kLevelShift), exponents);
}

template <Keep kKeep, bool kWhole, bool kResidual>
void count_lines(const Values& chunk, Counts<kOneLevel<kKeep, kWhole>>& counts) noexcept {
  const Classifier32<kKeep, kWhole> classify(chunk.rule);
  const unsigned share = sample_share(chunk.count);
  const std::uint32_t group_elements = kLineElements << share;
  for (std::uint32_t group = 0; group * group_elements < chunk.count; group += 2) {
    const TwoLines<kKeep, kResidual> lines(chunk, group, share);
    const Classified32 values =
        classify.keep(lines.values, classify.levels(lines.values, lines.significance));
    alignas(64) std::uint16_t index[2 * kLineElements];
    _mm512_store_si512(index, counts_of(values, kOneLevel<kKeep, kWhole>));
    const std::uint32_t both = lines.values.present[0] & lines.values.present[1];
    if (both == 0xFFFF) [[likely]] {
      for (std::uint32_t i = 0; i < 2 * kLineElements; ++i) ++counts.of[i % kTables][index[i]];
      continue;
    }
    for (std::uint32_t i = 0; i < 2 * kLineElements; ++i) {
      if ((lines.values.present[i % 2] >> i / 2 & 1) != 0) ++counts.of[0][index[i]];
    }
  }
}

constexpr std::uint32_t kAhead = 512;  // elements before the current stretch that are fetched early

// The codes of a block as words: of each, from the highest bit on, the code, its length, and the bits of sign
// and mantissa behind it in steps. What is looked up: 32 * level + exponent above the window's lowest.
constexpr unsigned kLengthShift = 4;
constexpr std::uint32_t kEntryMask = 15;
constexpr std::uint32_t kCodeMask = 0xFF00;
constexpr std::uint32_t kEscapeIndex = kWindow;
constexpr std::uint32_t kZeroIndex = kWindow + 1;

[[gnu::always_inline]] inline __m512i to_left(__m512i entries) noexcept {
  const __m512i mask = all_words(kEntryMask);
  const __m512i length = _mm512_and_si512(entries, mask);
  const __m512i code =
      _mm512_and_si512(_mm512_srli_epi16(entries, kEntryCodeShift), all_words(kEntryCodeMask));
  const __m512i steps = _mm512_srli_epi16(entries, kEntryStepsShift);
  const __m512i left = _mm512_sllv_epi16(code, _mm512_sub_epi16(all_words(kWordBits), length));
  return _mm512_or_si512(left, _mm512_or_si512(_mm512_slli_epi16(length, kLengthShift), steps));
}

// kOne: of level 0 and tiny values alone.
template <bool kOne>
class Codes {
 public:
  [[gnu::always_inline]] explicit Codes(const EncodeTable& table) noexcept
      : lowest_(all_words((table.base + 1) << kExponentShift)),
        escape_(to_left(all_words(table.escape))),
        tiny_(to_left(all_words(table.entry[kTinySlot]))) {
    const __m512i zero = to_left(all_words(table.entry[kZeroSlot]));
    constexpr __mmask32 kRest = 1U << kEscapeIndex | 1U << kZeroIndex;
#pragma GCC unroll 8
    for (unsigned i = 0; i < kParts; ++i) {
      // The last row of a level has no exponent; behind that of the last level nothing is read.
      const __m512i rows = _mm512_maskz_loadu_epi16(~kRest, table.entry + kRows * i + 1);
      const __m512i escaped = _mm512_mask_mov_epi16(to_left(rows), 1U << kEscapeIndex, escape_);
      table_.part[i] = _mm512_mask_mov_epi16(escaped, 1U << kZeroIndex, zero);
    }
  }

  [[gnu::always_inline]] __m512i operator()(const Classified32& values) const noexcept {
    const __m512i above = _mm512_sub_epi16(values.exponents, lowest_);
    const __m512i within = _mm512_min_epu16(above, all_words(kEscapeIndex << kExponentShift));
    const __m512i row = _mm512_srli_epi16(within, kExponentShift);
    if constexpr (kOne) {
      const __m512i index = _mm512_mask_mov_epi16(row, values.zeros, all_words(kZeroIndex));
      const __m512i entries = _mm512_permutexvar_epi16(index, table_.part[0]);
      return _mm512_mask_mov_epi16(entries, values.tiny, tiny_);
    } else {
      const __m512i index = _mm512_ternarylogic_epi32(values.levels, all_words(kLevelWord), row, 0xEA);
      return look_up(table_, _mm512_mask_mov_epi16(index, values.zeros, all_words(kZeroIndex)));
    }
  }

  [[gnu::always_inline]] __mmask32 escapes(__m512i entries) const noexcept {
    return _mm512_cmpeq_epi16_mask(entries, escape_);
  }

 private:
  static constexpr unsigned kParts = kOne ? 1 : kLevels;

  Table<kParts> table_;
  __m512i lowest_;
  __m512i escape_;
  __m512i tiny_;
};

// The state of a block's encoder. Lanes as in the reference, in words: the 16 bits of a lane that leave next,
// and the `held` bits that follow them, highest first; mantissas have only the latter. Its address is passed
// only to inlined functions, so that it stays in registers.
struct Writer {
  __m512i leaving[2];
  __m512i codes[2];
  __m512i held[2];
  __m512i mantissas;
  __m512i filled;
  __m512i any;  // what is kept, or-ed
  std::byte* at = nullptr;
};

// `upper`: signs and mantissas in the upper bits, of which all but `width` are 0.
[[gnu::always_inline]] inline void push_mantissas(__m512i upper, __m512i width, Writer& writer) noexcept {
  const __m512i word_bits = _mm512_set1_epi32(kMantissaWordBits);
  const __m512i all = _mm512_or_si512(writer.mantissas, _mm512_srlv_epi32(upper, writer.filled));
  const __m512i sum = _mm512_add_epi32(writer.filled, width);
  const __mmask16 leave = _mm512_test_epi32_mask(sum, word_bits);
  _mm512_storeu_si512(writer.at, _mm512_maskz_compress_epi32(leave, all));
  writer.at += popcount(leave) * kMantissaWordBytes;
  writer.mantissas = _mm512_mask_sllv_epi32(all, leave, upper, _mm512_sub_epi32(word_bits, writer.filled));
  writer.filled = _mm512_andnot_si512(word_bits, sum);
}

[[gnu::always_inline]] inline void append_mantissas(__m512i upper, __mmask16 some, Writer& writer) noexcept {
  _mm512_storeu_si512(writer.at, upper_to_three_bytes(_mm512_maskz_compress_epi32(some, upper)));
  writer.at += popcount(some) * kSignMantissaBytes;
}

// Sign and mantissa in the upper 24 bits.
[[gnu::always_inline]] inline __m512i upper_of(__m512i kept) noexcept {
  return _mm512_ternarylogic_epi32(_mm512_set1_epi32(static_cast<int>(kSignBit)), kept,
                                   _mm512_slli_epi32(kept, 8), 0xCA);
}

// Words from the order of pairs to that of lanes.
[[gnu::always_inline]] inline __m512i in_order(__m512i words) noexcept {
  alignas(64) static constexpr std::uint16_t kPlaces[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                            22, 24, 26, 28, 30, 1,  3,  5,  7,  9,  11,
                                                            13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kPlaces), words);
}

// Two codes for each of 32 lanes: those of entries in row 0, and behind them those of row 1.
[[gnu::always_inline]] inline void push_codes(__m512i first, __m512i second, unsigned lanes,
                                              Writer& writer) noexcept {
  const __m512i length_mask = all_words(kEntryMask);
  const __m512i code_mask = all_words(kCodeMask);
  const __m512i later = _mm512_and_si512(_mm512_srli_epi16(second, kLengthShift), length_mask);
  const __m512i earlier = _mm512_and_si512(_mm512_srli_epi16(first, kLengthShift), length_mask);
  const __m512i below = _mm512_srlv_epi16(_mm512_and_si512(first, code_mask), later);
  // The later one above.
  const __m512i code = in_order(_mm512_ternarylogic_epi32(second, code_mask, below, 0xEA));
  const __m512i length = in_order(_mm512_add_epi16(earlier, later));
  const __m512i word_bits = all_words(kWordBits);
  const __m512i held = writer.held[lanes];
  const __m512i all = _mm512_or_si512(writer.codes[lanes], _mm512_srlv_epi16(code, held));
  const __m512i sum = _mm512_add_epi16(held, length);
  const __mmask32 leave = _mm512_test_epi16_mask(sum, word_bits);
  writer.at = append_words(leave, writer.leaving[lanes], writer.at);
  writer.leaving[lanes] = _mm512_mask_mov_epi16(writer.leaving[lanes], leave, all);
  writer.codes[lanes] = _mm512_mask_sllv_epi16(all, leave, code, _mm512_sub_epi16(word_bits, held));
  writer.held[lanes] = _mm512_andnot_si512(word_bits, sum);
}

// Four times 32 values: their exponents as words, and which of them are escaped.
struct Escapes {
  __m512i exponents[4];
  __mmask32 which[4];
};

// Exponents of escaped values, in their order. Returns where they end.
std::byte* append_escapes(const Escapes& escapes, std::byte* at) noexcept {
  for (unsigned i = 0; i < 4; ++i) {
    alignas(64) std::uint16_t exponents[32];
    _mm512_store_si512(exponents, in_order(_mm512_srli_epi16(escapes.exponents[i], kExponentShift)));
    const std::uint32_t which = escapes.which[i];
    std::uint32_t left = _pext_u32(which, 0x55555555U) | _pext_u32(which, 0xAAAAAAAAU) << 16;
    for (; left != 0; left &= left - 1) *at++ = static_cast<std::byte>(exponents[countr_zero(left)]);
  }
  return at;
}

// What stays the same for all stretches of a block.
template <Keep kKeep, bool kWhole>
struct Coder {
  const Values& block;
  Classifier32<kKeep, kWhole> classify;
  Codes<kOneLevel<kKeep, kWhole>> codes;
  __m512i widths;  // by what an entry has in its lowest 4 bits
};

[[gnu::always_inline]] inline void fetch(const float* values) noexcept {
  // The next block's, even past the end: a prefetch never faults. Only into the second cache, as they are
  // needed much later.
  _mm_prefetch(reinterpret_cast<const char*>(values) + kBlockElements * sizeof(float), _MM_HINT_T1);
  _mm_prefetch(reinterpret_cast<const char*>(values) - kAhead * sizeof(float), _MM_HINT_T0);
}

// Prefetches 32 values from `at` on, of the next block and further on in this one.
template <Keep kKeep, bool kResidual>
[[gnu::always_inline]] inline void fetch_early(const Values& block, std::uint32_t at) noexcept {
#pragma GCC unroll 2
  for (std::uint32_t i = at; i < at + 32; i += 16) {
    fetch(block.in + i);
    if constexpr (kKeep == Keep::kSignificance) fetch(block.significance + i);
    if constexpr (kResidual) fetch(block.residual + i);
  }
}

// Where the significance of 32 values from `at` on is, if that decides.
template <Keep kKeep>
struct Significance {
  [[gnu::always_inline]] Significance(const Values& values, std::uint32_t at) noexcept
      : of{kKeep == Keep::kSignificance ? values.significance + at : nullptr,
           kKeep == Keep::kSignificance ? values.significance + at + 16 : nullptr} {}
  const float* const of[2];
};

constexpr unsigned kPairs = kMaxStretch / 32;

// Writes the mantissas of 32 values.
template <bool kWhole>
[[gnu::always_inline]] inline void push_pair(const Classified32& values, __m512i entries, __m512i widths,
                                             Writer& writer) noexcept {
#pragma GCC unroll 2
  for (unsigned i = 0; i < 2; ++i) {
    const __m512i upper = upper_of(values.kept[i]);
    if constexpr (kWhole) {
      append_mantissas(upper, values.some[i], writer);  // what is absent is +0
    } else {
      // Only 4 bits matter.
      const __m512i steps = i == 0 ? entries : _mm512_srli_epi32(entries, 16);
      push_mantissas(upper, _mm512_permutexvar_epi32(steps, widths), writer);
    }
  }
}

// Each step is done for all values of the stretch, so that latencies overlap.
template <Keep kKeep, bool kWhole, bool kResidual, bool kTail>
[[gnu::always_inline]] inline void push_stretch(const Coder<kKeep, kWhole>& coder, std::uint32_t begin,
                                                Writer& writer) noexcept {
  const Values& block = coder.block;
  Pair pairs[kPairs];
  __m512i levels[kPairs];
#pragma GCC unroll 4
  for (unsigned i = 0; i < kPairs; ++i) {
    const std::uint32_t at = begin + 32 * i;
    pairs[i] = pair_of<kResidual, kTail>(block, at);
    levels[i] = coder.classify.levels(pairs[i], Significance<kKeep>(block, at).of);
    fetch_early<kKeep, kResidual>(block, at);
  }
  Classified32 values[kPairs];
#pragma GCC unroll 4
  for (unsigned i = 0; i < kPairs; ++i) {
    values[i] = coder.classify.keep(pairs[i], levels[i]);
    keep_left_over<kResidual>(block, begin + 32 * i, pairs[i], values[i]);
    writer.any = _mm512_or_si512(writer.any, _mm512_or_si512(values[i].kept[0], values[i].kept[1]));
  }
  __m512i entries[kPairs];
  Escapes escapes;
#pragma GCC unroll 4
  for (unsigned i = 0; i < kPairs; ++i) {
    entries[i] = coder.codes(values[i]);
    if constexpr (kTail) entries[i] = _mm512_maskz_mov_epi16(in_pairs(pairs[i].present), entries[i]);
    escapes.exponents[i] = values[i].exponents;
    escapes.which[i] = coder.codes.escapes(entries[i]);
  }
#pragma GCC unroll 4
  for (unsigned i = 0; i < kPairs; ++i) push_pair<kWhole>(values[i], entries[i], coder.widths, writer);
  push_codes(entries[0], entries[2], 0, writer);
  push_codes(entries[1], entries[3], 1, writer);
  if ((escapes.which[0] | escapes.which[1] | escapes.which[2] | escapes.which[3]) != 0) [[unlikely]]
    writer.at = append_escapes(escapes, writer.at);
}

// Sixteen lanes that hold `held` bits, the lowest ones of `bits`.
[[gnu::always_inline]] inline std::byte* append_states(__m512i bits, __m512i held, std::byte* at) noexcept {
  _mm512_storeu_si512(at, _mm512_or_si512(bits, _mm512_sllv_epi32(_mm512_set1_epi32(1), held)));
  return at + 16 * kStateBytes;
}

void write_states(bool whole, const Writer& writer) noexcept {
  std::byte* at = writer.at;
  for (unsigned i = 0; i < 4; ++i) {
    const auto half = [i](__m512i words) {
      return _mm512_cvtepu16_epi32(i % 2 == 0 ? _mm512_castsi512_si256(words)
                                              : _mm512_extracti64x4_epi64(words, 1));
    };
    const __m512i held = half(writer.held[i / 2]);
    const __m512i lower =
        _mm512_srlv_epi32(half(writer.codes[i / 2]), _mm512_sub_epi32(_mm512_set1_epi32(kWordBits), held));
    const __m512i upper = _mm512_sllv_epi32(half(writer.leaving[i / 2]), held);
    at = append_states(_mm512_or_si512(upper, lower), _mm512_add_epi32(held, _mm512_set1_epi32(kWordBits)),
                       at);
  }
  if (whole) return;
  const __m512i unfilled = _mm512_sub_epi32(_mm512_set1_epi32(kMantissaWordBits), writer.filled);
  append_states(_mm512_srlv_epi32(writer.mantissas, unfilled), writer.filled, at);
}

struct Coding {
  template <Keep kKeep, bool kWhole, bool kResidual>
  static void count(const Values& chunk, std::uint32_t* sums) noexcept {
    Counts<kOneLevel<kKeep, kWhole>> counts = {};
    count_lines<kKeep, kWhole, kResidual>(chunk, counts);
    static_assert(kMostSample <= 0xFFFF);
    for (std::uint32_t i = 0; i < counts.kUsed; i += 32) {
      __m512i sum = _mm512_setzero_si512();
      for (const auto& table : counts.of) sum = _mm512_add_epi16(sum, _mm512_load_si512(table + i));
      _mm512_storeu_si512(sums + i, _mm512_cvtepu16_epi32(_mm512_castsi512_si256(sum)));
      _mm512_storeu_si512(sums + i + 16, _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(sum, 1)));
    }
    for (std::uint32_t i = counts.kUsed; i < kCounts; ++i) sums[i] = 0;
  }

  template <Keep kKeep, bool kWhole, bool kResidual>
  static EncodedBlock encode(const Values& block, const EncodeTable& table, std::byte* out) noexcept {
    const __m512i counted = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i step = _mm512_set1_epi32(static_cast<int>(block.rule.precision.step));
    const Coder<kKeep, kWhole> coder{block, Classifier32<kKeep, kWhole>(block.rule),
                                     Codes<kOneLevel<kKeep, kWhole>>(table),
                                     _mm512_mullo_epi32(counted, step)};
    const __m512i none = _mm512_setzero_si512();
    Writer writer{{none, none}, {none, none}, {none, none}, none, none, none, out};
    std::uint32_t begin = block.count / kMaxStretch * kMaxStretch;
    if (begin < block.count) push_stretch<kKeep, kWhole, kResidual, true>(coder, begin, writer);
    while (begin > 0) {
      begin -= kMaxStretch;
      push_stretch<kKeep, kWhole, kResidual, false>(coder, begin, writer);
    }
    write_states(kWhole, writer);
    return {static_cast<std::uint32_t>(writer.at - out), _mm512_test_epi32_mask(writer.any, writer.any) == 0};
  }

  template <Keep kKeep, bool kWhole, bool kResidual>
  static void store(const Values& values, std::byte* out) noexcept {
    const Classifier32<kKeep, kWhole> classify(values.rule);
    for (std::uint32_t at = 0; at < values.count; at += 32) {
      const Pair pair = pair_of<kResidual, true>(values, at);
      const Classified32 classified =
          classify.keep(pair, classify.levels(pair, Significance<kKeep>(values, at).of));
      keep_left_over<kResidual>(values, at, pair, classified);
      for (unsigned i = 0; i < 2; ++i) {
        _mm512_mask_storeu_epi32(out + (at + 16 * i) * kValueBytes, pair.present[i], classified.kept[i]);
      }
    }
  }
};

}  // namespace

extern constexpr Kernels kKernels = {histogram<Coding>, encode_block<Coding>, store_values<Coding>,
                                     decode_block,      decode_two,           decode_stored};

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
