// Decoding for AVX-512 with VBMI and VBMI2: lanes of codes in words, codes looked up 64 at a time in tables
// of bytes.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_decode_avx512.h"
#include "codecs/gcomp/gcomp_decode_ops.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

// In a byte of what is looked up, above the bits of sign and mantissa in threes.
constexpr unsigned kLengthShift = 4;
constexpr int kThirdsMask = 15;

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
    const std::uint32_t thirds = (entry >> kEntryWidthShift & kEntryWidthMask) / 3;
    exponents[i] = static_cast<std::uint8_t>(row == kEscapeSlot ? escape : exponent);
    lengths[i] = static_cast<std::uint8_t>((entry & kEntryLengthMask) << kLengthShift | thirds);
  }
  for (unsigned i = 0; i < 64; ++i) widths[i] = static_cast<std::uint8_t>(3 * (i & kThirdsMask));
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

// The lanes of a block, 32 in each vector: of a lane the next 16 bits, and as many as `held` of those above
// them.
struct Lanes {
  [[gnu::always_inline]] static Look look_of(const DecodeTable& table) noexcept { return load_look(table); }

  __m512i next[2];
  __m512i later[2];
  __m512i held[2];
  Mantissas mantissas;
};

// Exponents of 64 values, and lengths of their codes above thirds.
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
  __mmask16 wrong = 0;
#pragma GCC unroll 2
  for (int r = 1; r >= 0; --r) {
    const Row row = rows[r];
    const __m512i widths = _mm512_permutexvar_epi8(row.lengths, look.widths);
    const __mmask64 some = _mm512_test_epi8_mask(row.lengths, _mm512_set1_epi8(kThirdsMask));
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

}  // namespace

Fault decode_block(const BlockBytes& body, const DecodeTable& table, const Target& target) {
  return decode_any_block<Lanes>(body, table, target);
}

void decode_stored(const std::byte* payload, const Target& target) {
  decode_any_stored(payload, target);
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
