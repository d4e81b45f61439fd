// Decoding for AVX-512, compiled again for VBMI2: blocks of 64 lanes. Shorter ones are left to the reference.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_decode_ops.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

// Signs and mantissas, and writing values.

template <Deliver kDeliver>
[[gnu::always_inline]] inline void deliver(__m512i bits, __mmask16 present, __m512 scale,
                                           float* slot) noexcept {
  if constexpr (kDeliver == Deliver::kOverwrite) {
    _mm512_mask_storeu_epi32(slot, present, bits);
  } else if constexpr (kDeliver == Deliver::kStream) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(slot), bits);
  } else {
    const __mmask16 some = _mm512_test_epi32_mask(bits, bits) & present;
    const __m512 value = _mm512_maskz_mul_ps(some, scale, _mm512_castsi512_ps(bits));
    if constexpr (kDeliver == Deliver::kScale) {
      _mm512_mask_storeu_ps(slot, present, value);
    } else {
      const __m512 before = _mm512_maskz_loadu_ps(present, slot);
      _mm512_mask_storeu_ps(slot, present, _mm512_mask_add_ps(before, some, before, value));
    }
  }
}

// Lanes of mantissas, cleared of what was read.
struct Mantissas {
  __m512i lanes;
  __m512i filled;
};

// False if a lane has no end bit. Chunks in which nothing is cut have no such lanes.
inline bool open_mantissas(const std::byte* states, bool whole, Mantissas& mantissas) noexcept {
  alignas(64) std::uint32_t lanes[kMaxMantissaLanes] = {};
  alignas(64) std::uint32_t filled[kMaxMantissaLanes] = {};
  for (unsigned lane = 0; !whole && lane < kMaxMantissaLanes; ++lane) {
    const auto state = load_le<std::uint32_t>(states + lane * kStateBytes);
    if (state == 0) return false;
    filled[lane] = bit_width(state) - 1;
    lanes[lane] = state ^ 1U << filled[lane];
  }
  mantissas = {_mm512_load_si512(lanes), _mm512_load_si512(filled)};
  return true;
}

// The next sixteen numbers of `width` bits, in the upper bits.
[[gnu::always_inline]] inline __m512i read_mantissas(__m512i width, Mantissas& from,
                                                     const std::byte*& at) noexcept {
  const __m512i word_bits = _mm512_set1_epi32(kMantissaWordBits);
  const __m512i filled = from.filled;
  const __mmask16 needs = _mm512_cmplt_epu32_mask(filled, width);
  at -= popcount(needs) * kMantissaWordBytes;
  const __m512i words = _mm512_maskz_expand_epi32(needs, _mm512_loadu_si512(at));
  const __m512i all = _mm512_or_si512(from.lanes, _mm512_sllv_epi32(words, filled));
  from.lanes = _mm512_mask_srlv_epi32(_mm512_srlv_epi32(from.lanes, width), needs, words,
                                      _mm512_sub_epi32(width, filled));
  from.filled = _mm512_and_si512(_mm512_sub_epi32(filled, width), _mm512_set1_epi32(kMantissaWordBits - 1));
  return _mm512_sllv_epi32(all, _mm512_sub_epi32(word_bits, width));
}

// The same where every value but zeros has 3 bytes.
[[gnu::always_inline]] inline __m512i take_mantissas(__mmask16 some, const std::byte*& at) noexcept {
  at -= popcount(some) * kSignMantissaBytes;
  return _mm512_maskz_expand_epi32(some, three_bytes_to_upper(_mm512_loadu_si512(at)));
}

// The float of an exponent, in its place, and of sign and mantissa in the upper 24 bits.
[[gnu::always_inline]] inline __m512i assembled(__m512i exponent, __m512i upper) noexcept {
  // The mantissa below the exponent, and then the sign above both.
  const __m512i magnitude = _mm512_ternarylogic_epi32(_mm512_set1_epi32(static_cast<int>(kMantissaMask)),
                                                      _mm512_srli_epi32(upper, 8), exponent, 0xCA);
  return _mm512_ternarylogic_epi32(magnitude, upper, _mm512_set1_epi32(static_cast<int>(kSignBit)), 0xF8);
}

// Sixteen values of a whole chunk that all have exponents, in place above rubbish, and 3 bytes: those of the
// last one right below `at`.
[[gnu::always_inline]] inline __m512i assemble_dense(__m512i exponent, const std::byte* at) noexcept {
  const __m512i packed = _mm512_loadu_si512(at - 16 * kSignMantissaBytes);
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(kSignBit | kMantissaMask));
  return _mm512_ternarylogic_epi32(mask, three_bytes_to_ends(packed), exponent, 0xCA);
}

// Both ways have Lanes::look_of(table), a table of codes as it is looked up; and for Lanes open(states,
// whole, lanes), false if they are none; decode_stretch<kWhole, kTail, kDeliver>(table, look, lanes, count,
// at, scale, slot), which reads `count` values downwards from `at`; close(lanes), a fault if they don't end
// as they must.
#ifndef __AVX512VBMI2__

// AVX-512 F, BW, DQ and VL: a lane of codes in a double word, codes looked up 32 at a time.

using Look = LookUp;

// The lanes of a block, cleared of what was read.
struct Lanes {
  [[gnu::always_inline]] static Look look_of(const DecodeTable& table) noexcept {
    return load_look_up(table.entry);
  }

  __m512i codes[4];
  __m512i held[4];
  Mantissas mantissas;
};

// A stretch of 128 values: their entries as look_up() gives them. Of entries[row][pair] the low half of word
// i belongs to value 64 row + 32 pair + i, the high half to the one 16 after it.
struct Stretch {
  __m512i entries[2][2];
  std::uint32_t escapes[4];  // bit i of words: value 32 word + i

  // Bits of sign and mantissa of each of sixteen values.
  [[gnu::always_inline]] __m512i widths(unsigned vector) const noexcept {
    const __m512i pair = entries[vector / 4][vector / 2 % 2];
    const unsigned shift = kEntryWidthShift + (vector % 2 == 0 ? 0 : 16);
    return _mm512_and_si512(_mm512_srli_epi32(pair, shift), _mm512_set1_epi32(kEntryWidthMask));
  }

  // Their rows, where exponents stand in a float, above rubbish.
  [[gnu::always_inline]] __m512i rows(unsigned vector) const noexcept {
    const __m512i pair = entries[vector / 4][vector / 2 % 2];
    constexpr unsigned kShift = kMantissaBits - kEntryRowShift;
    if (vector % 2 != 0) return _mm512_srli_epi32(pair, 16 - kShift);
    return _mm512_slli_epi32(_mm512_and_si512(pair, _mm512_set1_epi32(0xFFFF)), kShift);
  }
};

// Which of the values from `first` on there are, as halves of 32 lanes in the order of entries.
[[gnu::always_inline]] inline __mmask32 present_pair(std::uint32_t count, std::uint32_t first) noexcept {
  const std::uint32_t low = first_lanes(count, first);
  const std::uint32_t high = first_lanes(count, first + 16);
  return _pdep_u32(low, 0x55555555U) | _pdep_u32(high, 0xAAAAAAAAU);
}

template <bool kTail>
[[gnu::always_inline]] inline void read_codes(const LookUp& table, std::uint32_t count, Lanes& lanes,
                                              Stretch& stretch) noexcept {
  const __m512i length_mask = _mm512_set1_epi32(kEntryLengthMask);
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned pair = i % 2;
    __m512i& low = lanes.codes[2 * pair];
    __m512i& high = lanes.codes[2 * pair + 1];
    const __m512i next = _mm512_mask_blend_epi16(0xAAAAAAAAU, low, _mm512_slli_epi32(high, 16));
    __m512i entries = look_up(table, next);
    if constexpr (kTail) entries = _mm512_maskz_mov_epi16(present_pair(count, 32 * i), entries);
    stretch.entries[i / 2][pair] = entries;
    const __m512i low_length = _mm512_and_si512(entries, length_mask);
    const __m512i high_length = _mm512_and_si512(_mm512_srli_epi32(entries, 16), length_mask);
    low = _mm512_srlv_epi32(low, low_length);
    high = _mm512_srlv_epi32(high, high_length);
    lanes.held[2 * pair] = _mm512_sub_epi32(lanes.held[2 * pair], low_length);
    lanes.held[2 * pair + 1] = _mm512_sub_epi32(lanes.held[2 * pair + 1], high_length);
  }
}

[[gnu::always_inline]] inline void refill(Lanes& lanes, const std::byte*& at) noexcept {
  const __m512i word_bits = _mm512_set1_epi32(kWordBits);
#pragma GCC unroll 4
  for (int i = 3; i >= 0; --i) {
    const __mmask16 needs = _mm512_cmplt_epu32_mask(lanes.held[i], word_bits);
    at -= popcount(needs) * kWordBytes;
    const __m512i next = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
    const __m512i words = _mm512_maskz_expand_epi32(needs, next);
    lanes.codes[i] = _mm512_or_si512(lanes.codes[i], _mm512_sllv_epi32(words, lanes.held[i]));
    lanes.held[i] = _mm512_mask_add_epi32(lanes.held[i], needs, lanes.held[i], word_bits);
  }
}

// Exponents behind escapes: bit i of escapes[j] is value 32 j + i.
struct Escaped {
  alignas(64) std::uint32_t exponents[kMaxStretch];
  bool legal = true;
};

// Returns where they begin.
const std::byte* read_escapes(const DecodeTable& table, const std::uint32_t (&escapes)[4],
                              const std::byte* at, Escaped& escaped) noexcept {
  for (unsigned word = 4; word-- > 0;) {
    for (std::uint32_t left = escapes[word]; left != 0;) {
      const unsigned bit = bit_width(left) - 1;
      left ^= 1U << bit;
      const auto exponent = static_cast<std::uint32_t>(*--at);
      escaped.legal &= may_escape(table, exponent);
      escaped.exponents[32 * word + bit] = exponent;
    }
  }
  return at;
}

// Which entries are escapes: bit i of words is value 32 word + i.
[[gnu::always_inline]] inline bool find_escapes(Stretch& stretch) noexcept {
  const __m512i escape = _mm512_set1_epi16(static_cast<short>(kEscapeSlot << kEntryRowShift));
  std::uint32_t any = 0;
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    // No row above the escape's, so nothing else has all its bits.
    stretch.escapes[i] = _mm512_cmpge_epu16_mask(stretch.entries[i / 2][i % 2], escape);
    any |= stretch.escapes[i];
  }
  return any != 0;
}

[[gnu::always_inline]] inline void order_escapes(Stretch& stretch) noexcept {
  for (std::uint32_t& word : stretch.escapes) {
    word = _pext_u32(word, 0x55555555U) | _pext_u32(word, 0xAAAAAAAAU) << 16;
  }
}

// Whether no value of a whole chunk is +0 or tiny.
[[gnu::always_inline]] inline bool is_dense(const Stretch& stretch) noexcept {
  const __m512i row_mask = _mm512_set1_epi16(static_cast<short>((kRows - 1) << kEntryRowShift));
  __mmask32 none = 0;
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) none |= _mm512_testn_epi16_mask(stretch.entries[i / 2][i % 2], row_mask);
  return none == 0;
}

// Sixteen values from their exponents, in place above rubbish, and what stands in the stream. Sets of `wrong`
// which are tiny ones that are +0.
template <bool kWhole>
[[gnu::always_inline]] inline __m512i assemble(__m512i exponent, __m512i width, Lanes& lanes,
                                               const std::byte*& at, __mmask16& wrong) noexcept {
  __m512i upper;
  __mmask16 some = 0;
  if constexpr (kWhole) {
    some = _mm512_test_epi32_mask(width, width);
    upper = take_mantissas(some, at);
  } else {
    upper = read_mantissas(width, lanes.mantissas, at);
  }
  const __m512i bits = assembled(exponent, upper);
  if constexpr (kWhole) wrong |= _mm512_mask_testn_epi32_mask(some, bits, bits);
  return bits;
}

template <bool kWhole, bool kTail, Deliver kDeliver>
[[gnu::always_inline]] inline Fault decode_stretch(const DecodeTable& table, const Look& look, Lanes& lanes,
                                                   std::uint32_t count, const std::byte*& at, __m512 scale,
                                                   float* slot) noexcept {
  Stretch stretch;
  read_codes<kTail>(look, count, lanes, stretch);
  Escaped escaped;
  const bool escapes = find_escapes(stretch);
  if (escapes) [[unlikely]] {
    order_escapes(stretch);
    const std::uint32_t ordered[4] = {stretch.escapes[0], stretch.escapes[1], stretch.escapes[2],
                                      stretch.escapes[3]};
    at = read_escapes(table, ordered, at, escaped);
  }
  refill(lanes, at);
  const __m512i base = _mm512_set1_epi32(static_cast<int>(table.base << kMantissaBits));
  if (kWhole && !kTail && !escapes && is_dense(stretch)) {
#pragma GCC unroll 8
    for (int i = 7; i >= 0; --i) {
      const auto vector = static_cast<unsigned>(i);
      const __m512i exponent = _mm512_add_epi32(stretch.rows(vector), base);
      const std::byte* const behind = at - (7 - vector) * 16 * kSignMantissaBytes;
      deliver<kDeliver>(assemble_dense(exponent, behind), 0xFFFF, scale, slot + 16 * vector);
    }
    at -= kMaxStretch * kSignMantissaBytes;
    return Fault::kNone;
  }
  const __m512i row_mask = _mm512_set1_epi32(static_cast<int>((kRows - 1) << kMantissaBits));
  __mmask16 wrong = 0;
#pragma GCC unroll 8
  for (int i = 7; i >= 0; --i) {
    const auto vector = static_cast<unsigned>(i);
    const __m512i row = stretch.rows(vector);
    __m512i exponent = _mm512_maskz_add_epi32(_mm512_test_epi32_mask(row, row_mask), row, base);
    if (escapes) [[unlikely]] {
      const auto of_vector = static_cast<__mmask16>(stretch.escapes[vector / 2] >> (vector % 2 * 16));
      const __m512i known =
          _mm512_slli_epi32(_mm512_load_si512(escaped.exponents + 16 * vector), kMantissaBits);
      exponent = _mm512_mask_mov_epi32(exponent, of_vector, known);
    }
    const __m512i bits = assemble<kWhole>(exponent, stretch.widths(vector), lanes, at, wrong);
    const __mmask16 present = kTail ? first_lanes(count, 16 * vector) : 0xFFFF;
    deliver<kDeliver>(bits, present, scale, slot + 16 * vector);
  }
  if (!escaped.legal) return Fault::kEscape;
  return wrong == 0 ? Fault::kNone : Fault::kTinyZero;
}

// False if a lane has no end bit, or too few bits below it.
bool open(const std::byte* states, bool whole, Lanes& lanes) noexcept {
  alignas(64) std::uint32_t x[kMaxLanes];
  alignas(64) std::uint32_t n[kMaxLanes];
  for (unsigned lane = 0; lane < kMaxLanes; ++lane) {
    const auto state = load_le<std::uint32_t>(states + lane * kStateBytes);
    if (state >> kWordBits == 0) return false;
    n[lane] = bit_width(state) - 1;
    x[lane] = state ^ 1U << n[lane];
  }
  for (unsigned i = 0; i < 4; ++i) {
    lanes.codes[i] = _mm512_load_si512(x + 16 * i);
    lanes.held[i] = _mm512_load_si512(n + 16 * i);
  }
  return open_mantissas(states + kMaxLanes * kStateBytes, whole, lanes.mantissas);
}

Fault close(Lanes lanes) noexcept {
  __m512i left = _mm512_or_si512(lanes.mantissas.lanes, lanes.mantissas.filled);
  for (unsigned i = 0; i < 4; ++i) {
    const __m512i held = _mm512_xor_si512(lanes.held[i], _mm512_set1_epi32(kWordBits));
    left = _mm512_or_si512(left, _mm512_or_si512(lanes.codes[i], held));
  }
  return _mm512_test_epi32_mask(left, left) == 0 ? Fault::kNone : Fault::kLaneEnd;
}

#else

// VBMI and VBMI2: lanes of codes in words, codes looked up 64 at a time in tables of bytes.

// In a byte of what is looked up, above the bits of sign and mantissa in steps.
constexpr unsigned kLengthShift = 4;
constexpr int kStepsMask = 15;

// The table of a chunk as bytes, for each value of the next 8 bits.
struct Look {
  __m512i exponents[4];
  __m512i lengths[4];
  __m512i widths;  // bits of sign and mantissa, by a byte of `lengths`
  __m512i escape;  // among exponents: one that no code has
};

[[gnu::always_inline]] inline Look load_look(const DecodeTable& table) noexcept {
  alignas(64) std::uint8_t exponents[1U << kMaxCodeBits];
  alignas(64) std::uint8_t lengths[1U << kMaxCodeBits];
  alignas(64) std::uint8_t widths[64];
  const std::uint32_t escape = table.base < 128 ? 254 : 1;
  for (unsigned i = 0; i < 1U << kMaxCodeBits; ++i) {
    const std::uint32_t entry = table.entry[i];
    const std::uint32_t row = entry >> kEntryRowShift;
    const std::uint32_t exponent = row == 0 ? 0 : table.base + row;
    const std::uint32_t steps = (entry >> kEntryWidthShift & kEntryWidthMask) / table.step;
    exponents[i] = static_cast<std::uint8_t>(row == kEscapeSlot ? escape : exponent);
    lengths[i] = static_cast<std::uint8_t>((entry & kEntryLengthMask) << kLengthShift | steps);
  }
  for (unsigned i = 0; i < 64; ++i) widths[i] = static_cast<std::uint8_t>(table.step * (i & kStepsMask));
  Look look;
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    look.exponents[i] = _mm512_load_si512(exponents + 64 * i);
    look.lengths[i] = _mm512_load_si512(lengths + 64 * i);
  }
  look.widths = _mm512_load_si512(widths);
  look.escape = _mm512_set1_epi8(static_cast<char>(escape));
  return look;
}

// The lanes of a block, 32 in each vector: the next 16 bits of each lane, and the `held` bits above them.
struct Lanes {
  [[gnu::always_inline]] static Look look_of(const DecodeTable& table) noexcept { return load_look(table); }

  __m512i next[2];
  __m512i later[2];
  __m512i held[2];
  Mantissas mantissas;
};

// Exponents of 64 values, and lengths of their codes above steps.
struct Row {
  __m512i exponents;
  __m512i lengths;
};

[[gnu::always_inline]] inline __m512i look_up(const __m512i (&table)[4], __m512i index,
                                              __mmask64 upper) noexcept {
  const __m512i low = _mm512_permutex2var_epi8(table[0], index, table[1]);
  return _mm512_mask_mov_epi8(low, upper, _mm512_permutex2var_epi8(table[2], index, table[3]));
}

// By the lowest bytes of 64 words.
[[gnu::always_inline]] inline Row look_up(const Look& look, const __m512i (&words)[2]) noexcept {
  alignas(64) static constexpr std::uint8_t kPlaces[64] = {
      0,  2,  4,  6,  8,  10, 12,  14,  16,  18,  20,  22,  24,  26,  28,  30,  32,  34,  36,  38, 40, 42,
      44, 46, 48, 50, 52, 54, 56,  58,  60,  62,  64,  66,  68,  70,  72,  74,  76,  78,  80,  82, 84, 86,
      88, 90, 92, 94, 96, 98, 100, 102, 104, 106, 108, 110, 112, 114, 116, 118, 120, 122, 124, 126};
  const __m512i index = _mm512_permutex2var_epi8(words[0], _mm512_load_si512(kPlaces), words[1]);
  const __mmask64 upper = _mm512_movepi8_mask(index);
  return {look_up(look.exponents, index, upper), look_up(look.lengths, index, upper)};
}

// As words, of the first or the last 32.
[[gnu::always_inline]] inline __m512i lengths_of(const Row& row, unsigned half) noexcept {
  const __m256i bytes =
      half == 0 ? _mm512_castsi512_si256(row.lengths) : _mm512_extracti64x4_epi64(row.lengths, 1);
  return _mm512_srli_epi16(_mm512_cvtepu8_epi16(bytes), kLengthShift);
}

// Which of 64 values from `first` on are below `count`.
[[gnu::always_inline]] inline __mmask64 present_row(std::uint32_t count, std::uint32_t first) noexcept {
  if (count <= first) return 0;
  return count - first < 64 ? (__mmask64{1} << (count - first)) - 1 : ~__mmask64{0};
}

// Two codes of each lane. What lanes lack then is negative in `held`.
template <bool kTail>
[[gnu::always_inline]] inline void read_codes(const Look& look, std::uint32_t count, Lanes& lanes,
                                              Row (&rows)[2]) noexcept {
  const __m512i word_bits = _mm512_set1_epi16(kWordBits);
  __m512i lengths[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 2
  for (unsigned r = 0; r < 2; ++r) {
    rows[r] = look_up(look, lanes.next);
    if constexpr (kTail) {
      const __mmask64 present = present_row(count, 64 * r);
      rows[r] = {_mm512_maskz_mov_epi8(present, rows[r].exponents),
                 _mm512_maskz_mov_epi8(present, rows[r].lengths)};
    }
#pragma GCC unroll 2
    for (unsigned i = 0; i < 2; ++i) {
      const __m512i length = lengths_of(rows[r], i);
      lanes.next[i] = _mm512_srlv_epi16(lanes.next[i], length);
      lengths[i] = _mm512_add_epi16(lengths[i], length);
    }
  }
#pragma GCC unroll 2
  for (unsigned i = 0; i < 2; ++i) {
    const __m512i down = _mm512_sllv_epi16(lanes.later[i], _mm512_sub_epi16(word_bits, lengths[i]));
    lanes.next[i] = _mm512_or_si512(lanes.next[i], down);
    lanes.later[i] = _mm512_srlv_epi16(lanes.later[i], lengths[i]);
    lanes.held[i] = _mm512_sub_epi16(lanes.held[i], lengths[i]);
  }
}

[[gnu::always_inline]] inline void refill(Lanes& lanes, const std::byte*& at) noexcept {
  const __m512i word_bits = _mm512_set1_epi16(kWordBits);
#pragma GCC unroll 2
  for (int i = 1; i >= 0; --i) {
    const __mmask32 needs = _mm512_movepi16_mask(lanes.held[i]);
    at -= popcount(needs) * kWordBytes;
    const __m512i words = _mm512_maskz_expand_epi16(needs, _mm512_loadu_si512(at));
    // A lane that lacks some has as many fewer than 16 next bits, and none later.
    const __m512i held = _mm512_and_si512(lanes.held[i], _mm512_set1_epi16(kWordBits - 1));
    lanes.next[i] = _mm512_or_si512(lanes.next[i], _mm512_sllv_epi16(words, held));
    lanes.later[i] =
        _mm512_or_si512(lanes.later[i], _mm512_srlv_epi16(words, _mm512_sub_epi16(word_bits, held)));
    lanes.held[i] = held;
  }
}

// Puts the exponents behind escapes in their places. False if one is illegal. Returns where they begin.
bool read_escapes(const DecodeTable& table, const Look& look, const std::byte*& at, Row (&rows)[2]) noexcept {
  bool legal = true;
  for (unsigned r = 2; r-- > 0;) {
    std::uint64_t left = _mm512_cmpeq_epi8_mask(rows[r].exponents, look.escape);
    alignas(64) std::uint8_t exponents[64];
    _mm512_store_si512(exponents, rows[r].exponents);
    while (left != 0) {
      const unsigned place = bit_width(left) - 1;
      left ^= std::uint64_t{1} << place;
      exponents[place] = static_cast<std::uint8_t>(*--at);
      legal &= may_escape(table, exponents[place]);
    }
    rows[r].exponents = _mm512_load_si512(exponents);
  }
  return legal;
}

// Whether no value of a whole chunk is +0 or tiny.
[[gnu::always_inline]] inline bool is_dense(const Row (&rows)[2]) noexcept {
  return (_mm512_testn_epi8_mask(rows[0].exponents, rows[0].exponents) |
          _mm512_testn_epi8_mask(rows[1].exponents, rows[1].exponents)) == 0;
}

// The places of sixteen values of a row, each byte four times.
[[gnu::always_inline]] inline __m512i places_of(unsigned vector) noexcept {
  alignas(64) static constexpr std::uint8_t kFirst[64] = {
      0,  0,  0,  0,  1,  1,  1,  1,  2,  2,  2,  2,  3,  3,  3,  3,  4,  4,  4,  4,  5,  5,
      5,  5,  6,  6,  6,  6,  7,  7,  7,  7,  8,  8,  8,  8,  9,  9,  9,  9,  10, 10, 10, 10,
      11, 11, 11, 11, 12, 12, 12, 12, 13, 13, 13, 13, 14, 14, 14, 14, 15, 15, 15, 15};
  return _mm512_add_epi8(_mm512_load_si512(kFirst), _mm512_set1_epi8(static_cast<char>(16 * vector)));
}

template <bool kWhole, bool kTail, Deliver kDeliver>
[[gnu::always_inline]] inline Fault decode_stretch(const DecodeTable& table, const Look& look, Lanes& lanes,
                                                   std::uint32_t count, const std::byte*& at, __m512 scale,
                                                   float* slot) noexcept {
  Row rows[2];
  read_codes<kTail>(look, count, lanes, rows);
  bool legal = true;
  const __mmask64 escapes = _mm512_cmpeq_epi8_mask(rows[0].exponents, look.escape) |
                            _mm512_cmpeq_epi8_mask(rows[1].exponents, look.escape);
  if (escapes != 0) [[unlikely]]
    legal = read_escapes(table, look, at, rows);
  refill(lanes, at);
  if (kWhole && !kTail && escapes == 0 && is_dense(rows)) {
#pragma GCC unroll 8
    for (int i = 7; i >= 0; --i) {
      const auto vector = static_cast<unsigned>(i);
      const __m512i above = _mm512_maskz_permutexvar_epi8(0x8888888888888888U, places_of(vector % 4),
                                                          rows[vector / 4].exponents);
      const std::byte* const behind = at - (7 - vector) * 16 * kSignMantissaBytes;
      const __m512i bits = assemble_dense(_mm512_srli_epi32(above, 1), behind);
      deliver<kDeliver>(bits, 0xFFFF, scale, slot + 16 * vector);
    }
    at -= kMaxStretch * kSignMantissaBytes;
    return Fault::kNone;
  }
  __mmask16 wrong = 0;
#pragma GCC unroll 2
  for (int r = 1; r >= 0; --r) {
    const Row row = rows[r];
    const __m512i widths = _mm512_permutexvar_epi8(row.lengths, look.widths);
    const __mmask64 some = _mm512_test_epi8_mask(row.lengths, _mm512_set1_epi8(kStepsMask));
#pragma GCC unroll 4
    for (int i = 3; i >= 0; --i) {
      const auto vector = static_cast<unsigned>(i);
      const __m512i places = places_of(vector);
      const __m512i above = _mm512_maskz_permutexvar_epi8(0x8888888888888888U, places, row.exponents);
      const __m512i exponent = _mm512_srli_epi32(above, 1);
      __m512i bits;
      if constexpr (kWhole) {
        const auto here = static_cast<__mmask16>(some >> 16 * vector);
        bits = assembled(exponent, take_mantissas(here, at));
        wrong |= _mm512_mask_testn_epi32_mask(here, bits, bits);
      } else {
        const __m512i width = _mm512_maskz_permutexvar_epi8(0x1111111111111111U, places, widths);
        bits = assembled(exponent, read_mantissas(width, lanes.mantissas, at));
      }
      const std::uint32_t first = 64 * static_cast<unsigned>(r) + 16 * vector;
      const __mmask16 present = kTail ? first_lanes(count, first) : 0xFFFF;
      deliver<kDeliver>(bits, present, scale, slot + first);
    }
  }
  if (!legal) return Fault::kEscape;
  return wrong == 0 ? Fault::kNone : Fault::kTinyZero;
}

// False if a lane has no end bit, or too few bits below it.
bool open(const std::byte* states, bool whole, Lanes& lanes) noexcept {
  alignas(64) std::uint16_t next[kMaxLanes];
  alignas(64) std::uint16_t later[kMaxLanes];
  alignas(64) std::uint16_t held[kMaxLanes];
  for (unsigned lane = 0; lane < kMaxLanes; ++lane) {
    const auto state = load_le<std::uint32_t>(states + lane * kStateBytes);
    if (state >> kWordBits == 0) return false;
    const std::uint32_t above = state >> kWordBits;
    const unsigned end = bit_width(above) - 1;
    next[lane] = static_cast<std::uint16_t>(state);
    later[lane] = static_cast<std::uint16_t>(above ^ 1U << end);
    held[lane] = static_cast<std::uint16_t>(end);
  }
  for (unsigned i = 0; i < 2; ++i) {
    lanes.next[i] = _mm512_load_si512(next + 32 * i);
    lanes.later[i] = _mm512_load_si512(later + 32 * i);
    lanes.held[i] = _mm512_load_si512(held + 32 * i);
  }
  return open_mantissas(states + kMaxLanes * kStateBytes, whole, lanes.mantissas);
}

Fault close(const Lanes& lanes) noexcept {
  __m512i left = _mm512_or_si512(lanes.mantissas.lanes, lanes.mantissas.filled);
  for (unsigned i = 0; i < 2; ++i) {
    left = _mm512_or_si512(left, _mm512_or_si512(lanes.next[i], lanes.later[i]));
    left = _mm512_or_si512(left, lanes.held[i]);
  }
  return _mm512_test_epi32_mask(left, left) == 0 ? Fault::kNone : Fault::kLaneEnd;
}

#endif  // __AVX512VBMI2__

template <bool kWhole, Deliver kDeliver>
Fault decode_lanes(const BlockBytes& body, const DecodeTable& table, const Target& target) noexcept {
  Stream stream{body.at, body.at + body.stream_bytes};
  Lanes opened;
  if (!open(stream.at, kWhole, opened)) return Fault::kLaneState;
  Lanes lanes = opened;  // its address never escapes, so it stays in registers
  const auto look = Lanes::look_of(table);
  const __m512 scale = _mm512_set1_ps(target.scale);
  StreamEnd end;
  Fault fault = Fault::kNone;
  std::uint32_t begin = 0;
  for (; begin < target.count; begin += kMaxStretch) {
    const std::uint32_t count = target.count - begin;
    const std::byte* const from = readable(stream, end);
    const std::byte* at = from;
    fetch_early<kDeliver>(at, target.slot + begin);
    if (count >= kMaxStretch) [[likely]] {
      fault = decode_stretch<kWhole, false, kDeliver>(table, look, lanes, kMaxStretch, at, scale,
                                                      target.slot + begin);
    } else {
      constexpr Deliver kPlain = kDeliver == Deliver::kStream ? Deliver::kOverwrite : kDeliver;
      fault = decode_stretch<kWhole, true, kPlain>(table, look, lanes, count, at, scale, target.slot + begin);
    }
    if (!advance(stream, static_cast<std::uint32_t>(from - at))) return Fault::kTruncated;
    if (fault != Fault::kNone) return fault;
  }
  if constexpr (kDeliver == Deliver::kStream) _mm_sfence();
  return stream.at == stream.begin ? close(lanes) : Fault::kBytesLeft;
}

// `payload` may be null: zeros.
template <Deliver kDeliver>
void hand_over(const std::byte* payload, const Target& target) noexcept {
  const __m512 scale = _mm512_set1_ps(target.scale);
  const std::uint32_t full = target.count / 16 * 16;
  for (std::uint32_t i = 0; i < full; i += 16) {
    const __m512i bits =
        payload != nullptr ? _mm512_loadu_si512(payload + i * kValueBytes) : _mm512_setzero_si512();
    deliver<kDeliver>(bits, 0xFFFF, scale, target.slot + i);
  }
  if constexpr (kDeliver == Deliver::kStream) _mm_sfence();
  if (full == target.count) return;
  constexpr Deliver kPlain = kDeliver == Deliver::kStream ? Deliver::kOverwrite : kDeliver;
  const __mmask16 present = first_lanes(target.count, full);
  const __m512i bits = payload != nullptr ? _mm512_maskz_loadu_epi32(present, payload + full * kValueBytes)
                                          : _mm512_setzero_si512();
  deliver<kPlain>(bits, present, scale, target.slot + full);
}

}  // namespace

Fault decode_block(const BlockBytes& body, const DecodeTable& table, const Target& target) {
  if (lanes_for(target.count) < kMaxLanes) {
    return kernels_for(TargetId::kReference).decode_block(body, table, target);
  }
  return for_target<64>(target, [&]<Deliver kDeliver>() {
    return table.in_bytes ? decode_lanes<true, kDeliver>(body, table, target)
                          : decode_lanes<false, kDeliver>(body, table, target);
  });
}

void decode_stored(const std::byte* payload, const Target& target) {
  for_target<64>(target, [&]<Deliver kDeliver>() { hand_over<kDeliver>(payload, target); });
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
