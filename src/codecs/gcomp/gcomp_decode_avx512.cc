// Decoding for AVX-512 F, BW, DQ and VL: a lane of codes in a double word, codes looked up 32 at a time.
#include "codecs/gcomp/gcomp_decode_avx512.h"

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

}  // namespace

Fault decode_block(const BlockBytes& body, const DecodeTable& table, const Target& target) {
  return decode_any_block<Lanes>(body, table, target);
}

void decode_stored(const std::byte* payload, const Target& target) {
  decode_any_stored(payload, target);
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
