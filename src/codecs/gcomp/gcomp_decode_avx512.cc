// Decoding for AVX-512, compiled again for VBMI2: blocks of 64 lanes. Shorter ones are left to the reference.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
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
    if (!open_lane(states + lane * kStateBytes, 0, lanes[lane], filled[lane])) return false;
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

// Sixteen values of a whole chunk that all have exponents, in place, and 3 bytes: those of the last one right
// below `at`.
[[gnu::always_inline]] inline __m512i assemble_dense(__m512i exponent, const std::byte* at) noexcept {
  const __m512i packed = _mm512_loadu_si512(at - 16 * kSignMantissaBytes);
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(kSignBit | kMantissaMask));
  return _mm512_ternarylogic_epi32(mask, three_bytes_to_ends(packed), exponent, 0xCA);
}

// In the lower half of what is looked up, the length of a code above the bits of sign and mantissa in steps.
constexpr unsigned kLengthShift = 4;
constexpr int kStepsMask = 15;

// The lanes of a block, 32 in each vector: the next 16 bits of each lane, and the `held` bits above them.
struct Lanes {
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

// The table of a chunk as two bytes for each value of the next 8 bits.
struct Entries {
  alignas(64) std::uint8_t exponents[1U << kMaxCodeBits];
  alignas(64) std::uint8_t lengths[1U << kMaxCodeBits];
  std::uint8_t escape;  // among exponents: one that no code has
};

[[gnu::always_inline]] inline void load_entries(const DecodeTable& table, Entries& entries) noexcept {
  entries.escape = table.base < 128 ? 254 : 1;
  for (unsigned i = 0; i < 1U << kMaxCodeBits; ++i) {
    const std::uint32_t entry = table.entry[i];
    const std::uint32_t row = entry >> kEntryRowShift;
    const std::uint32_t exponent = row == 0 ? 0 : table.base + row;
    const std::uint32_t steps = (entry >> kEntryWidthShift & kEntryWidthMask) / table.step;
    entries.exponents[i] = row == kEscapeSlot ? entries.escape : static_cast<std::uint8_t>(exponent);
    entries.lengths[i] = static_cast<std::uint8_t>((entry & kEntryLengthMask) << kLengthShift | steps);
  }
}

// What a row's codes mean, and their lengths as halves, of 32 lanes each.
struct Codes {
  Row row;
  __m512i lengths[2];
};

#ifndef __AVX512VBMI2__

// AVX-512 F, BW, DQ and VL: codes are looked up 32 at a time.
struct Look {
  LookUp entries;  // exponents above lengths
  __m512i escape;
  __m512i widths;  // of as many steps, in each 16 bytes
};

[[gnu::always_inline]] inline Look load_look(const DecodeTable& table) noexcept {
  Entries entries;
  load_entries(table, entries);
  alignas(64) std::uint16_t words[1U << kMaxCodeBits];
  for (unsigned i = 0; i < 1U << kMaxCodeBits; ++i) {
    words[i] = static_cast<std::uint16_t>(entries.exponents[i] << 8 | entries.lengths[i]);
  }
  alignas(16) std::uint8_t widths[kStepsMask + 1];
  for (unsigned i = 0; i <= kStepsMask; ++i) widths[i] = static_cast<std::uint8_t>(table.step * i);
  return {load_look_up(words), _mm512_set1_epi8(static_cast<char>(entries.escape)),
          _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(widths)))};
}

// The lower bytes of 64 halves.
[[gnu::always_inline]] inline __m512i lower_bytes(__m512i first, __m512i second) noexcept {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(first)), _mm512_cvtepi16_epi8(second),
                            1);
}

[[gnu::always_inline]] inline Codes look_up(const Look& look, const __m512i (&next)[2]) noexcept {
  const __m512i first = look_up(look.entries, next[0]);
  const __m512i second = look_up(look.entries, next[1]);
  const __m512i mask = _mm512_set1_epi16(15);
  return {
      {lower_bytes(_mm512_srli_epi16(first, 8), _mm512_srli_epi16(second, 8)), lower_bytes(first, second)},
      {_mm512_and_si512(_mm512_srli_epi16(first, kLengthShift), mask),
       _mm512_and_si512(_mm512_srli_epi16(second, kLengthShift), mask)}};
}

// As many halves from `at` on as `needs` has bits, in their places.
[[gnu::always_inline]] inline __m512i expand_words(__mmask32 needs, const std::byte* at) noexcept {
  const auto low = static_cast<__mmask16>(needs);
  const auto sixteen = [](__mmask16 mask, const std::byte* from) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_cvtepi32_epi16(_mm512_maskz_expand_epi32(mask, _mm512_cvtepu16_epi32(words)));
  };
  const __m256i first = sixteen(low, at);
  const __m256i second = sixteen(static_cast<__mmask16>(needs >> 16), at + popcount(low) * kWordBytes);
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

// Bits of sign and mantissa, by a byte of lengths.
[[gnu::always_inline]] inline __m512i widths_of(const Look& look, __m512i lengths) noexcept {
  return _mm512_shuffle_epi8(look.widths, _mm512_and_si512(lengths, _mm512_set1_epi8(kStepsMask)));
}

// Sixteen of 64 bytes as words.
[[gnu::always_inline]] inline __m512i words_of(__m512i bytes, unsigned quarter) noexcept {
  alignas(64) std::uint8_t all[64];
  _mm512_store_si512(all, bytes);
  return _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(all + 16 * quarter)));
}

#else

// VBMI and VBMI2: codes are looked up 64 at a time in tables of bytes.
struct Look {
  __m512i exponents[4];
  __m512i lengths[4];
  __m512i escape;
  __m512i widths;  // by a byte of `lengths`
};

[[gnu::always_inline]] inline Look load_look(const DecodeTable& table) noexcept {
  Entries entries;
  load_entries(table, entries);
  alignas(64) std::uint8_t widths[64];
  for (unsigned i = 0; i < 64; ++i) widths[i] = static_cast<std::uint8_t>(table.step * (i & kStepsMask));
  Look look;
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    look.exponents[i] = _mm512_load_si512(entries.exponents + 64 * i);
    look.lengths[i] = _mm512_load_si512(entries.lengths + 64 * i);
  }
  look.escape = _mm512_set1_epi8(static_cast<char>(entries.escape));
  look.widths = _mm512_load_si512(widths);
  return look;
}

[[gnu::always_inline]] inline __m512i look_up(const __m512i (&table)[4], __m512i index,
                                              __mmask64 upper) noexcept {
  const __m512i low = _mm512_permutex2var_epi8(table[0], index, table[1]);
  return _mm512_mask_mov_epi8(low, upper, _mm512_permutex2var_epi8(table[2], index, table[3]));
}

// By the lowest bytes of 64 halves.
[[gnu::always_inline]] inline Codes look_up(const Look& look, const __m512i (&next)[2]) noexcept {
  alignas(64) static constexpr std::uint8_t kPlaces[64] = {
      0,  2,  4,  6,  8,  10, 12,  14,  16,  18,  20,  22,  24,  26,  28,  30,  32,  34,  36,  38, 40, 42,
      44, 46, 48, 50, 52, 54, 56,  58,  60,  62,  64,  66,  68,  70,  72,  74,  76,  78,  80,  82, 84, 86,
      88, 90, 92, 94, 96, 98, 100, 102, 104, 106, 108, 110, 112, 114, 116, 118, 120, 122, 124, 126};
  const __m512i index = _mm512_permutex2var_epi8(next[0], _mm512_load_si512(kPlaces), next[1]);
  const __mmask64 upper = _mm512_movepi8_mask(index);
  const Row row{look_up(look.exponents, index, upper), look_up(look.lengths, index, upper)};
  const auto halves = [](__m256i bytes) {
    return _mm512_srli_epi16(_mm512_cvtepu8_epi16(bytes), kLengthShift);
  };
  return {row,
          {halves(_mm512_castsi512_si256(row.lengths)), halves(_mm512_extracti64x4_epi64(row.lengths, 1))}};
}

[[gnu::always_inline]] inline __m512i expand_words(__mmask32 needs, const std::byte* at) noexcept {
  return _mm512_maskz_expand_epi16(needs, _mm512_loadu_si512(at));
}

[[gnu::always_inline]] inline __m512i widths_of(const Look& look, __m512i lengths) noexcept {
  return _mm512_permutexvar_epi8(lengths, look.widths);
}

[[gnu::always_inline]] inline __m512i words_of(__m512i bytes, unsigned quarter) noexcept {
  alignas(64) static constexpr std::uint8_t kFirst[64] = {
      0,  0,  0,  0,  1,  1,  1,  1,  2,  2,  2,  2,  3,  3,  3,  3,  4,  4,  4,  4,  5,  5,
      5,  5,  6,  6,  6,  6,  7,  7,  7,  7,  8,  8,  8,  8,  9,  9,  9,  9,  10, 10, 10, 10,
      11, 11, 11, 11, 12, 12, 12, 12, 13, 13, 13, 13, 14, 14, 14, 14, 15, 15, 15, 15};
  const __m512i places =
      _mm512_add_epi8(_mm512_load_si512(kFirst), _mm512_set1_epi8(static_cast<char>(16 * quarter)));
  return _mm512_maskz_permutexvar_epi8(0x1111111111111111U, places, bytes);
}

#endif  // __AVX512VBMI2__

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
    Codes codes = look_up(look, lanes.next);
    if constexpr (kTail) {
      const __mmask64 present = present_row(count, 64 * r);
      codes = {{_mm512_maskz_mov_epi8(present, codes.row.exponents),
                _mm512_maskz_mov_epi8(present, codes.row.lengths)},
               {_mm512_maskz_mov_epi16(static_cast<__mmask32>(present), codes.lengths[0]),
                _mm512_maskz_mov_epi16(static_cast<__mmask32>(present >> 32), codes.lengths[1])}};
    }
    rows[r] = codes.row;
#pragma GCC unroll 2
    for (unsigned i = 0; i < 2; ++i) {
      lanes.next[i] = _mm512_srlv_epi16(lanes.next[i], codes.lengths[i]);
      lengths[i] = _mm512_add_epi16(lengths[i], codes.lengths[i]);
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
    const __m512i words = expand_words(needs, at);
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
  const auto exponent_of = [&](unsigned vector) {
    return _mm512_slli_epi32(words_of(rows[vector / 4].exponents, vector % 4), kMantissaBits);
  };
  if (kWhole && !kTail && escapes == 0 && is_dense(rows)) {
#pragma GCC unroll 8
    for (int i = 7; i >= 0; --i) {
      const auto vector = static_cast<unsigned>(i);
      const std::byte* const behind = at - (7 - vector) * 16 * kSignMantissaBytes;
      deliver<kDeliver>(assemble_dense(exponent_of(vector), behind), 0xFFFF, scale, slot + 16 * vector);
    }
    at -= kMaxStretch * kSignMantissaBytes;
    return nullptr;
  }
  const __m512i widths[2] = {widths_of(look, rows[0].lengths), widths_of(look, rows[1].lengths)};
  __mmask16 wrong = 0;
#pragma GCC unroll 8
  for (int i = 7; i >= 0; --i) {
    const auto vector = static_cast<unsigned>(i);
    const __m512i width = words_of(widths[vector / 4], vector % 4);
    __m512i bits;
    if constexpr (kWhole) {
      const __mmask16 some = _mm512_test_epi32_mask(width, width);
      bits = assembled(exponent_of(vector), take_mantissas(some, at));
      wrong |= _mm512_mask_testn_epi32_mask(some, bits, bits);
    } else {
      bits = assembled(exponent_of(vector), read_mantissas(width, lanes.mantissas, at));
    }
    const __mmask16 present = kTail ? first_lanes(count, 16 * vector) : 0xFFFF;
    deliver<kDeliver>(bits, present, scale, slot + 16 * vector);
  }
  if (!legal) return &faults::kEscape;
  return wrong == 0 ? nullptr : &faults::kTinyZero;
}

// False if a lane has no end bit, or too few bits below it.
bool open(const std::byte* states, bool whole, Lanes& lanes) noexcept {
  alignas(64) std::uint16_t next[kMaxLanes];
  alignas(64) std::uint16_t later[kMaxLanes];
  alignas(64) std::uint16_t held[kMaxLanes];
  for (unsigned lane = 0; lane < kMaxLanes; ++lane) {
    std::uint32_t bits = 0;
    std::uint32_t count = 0;
    if (!open_lane(states + lane * kStateBytes, kWordBits, bits, count)) return false;
    next[lane] = static_cast<std::uint16_t>(bits);
    later[lane] = static_cast<std::uint16_t>(bits >> kWordBits);
    held[lane] = static_cast<std::uint16_t>(count - kWordBits);
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
  return _mm512_test_epi32_mask(left, left) == 0 ? nullptr : &faults::kLaneEnd;
}

template <bool kWhole, Deliver kDeliver>
Fault decode_lanes(const BlockBytes& body, const DecodeTable& table, const Target& target) noexcept {
  Stream stream{body.at, body.at + body.stream_bytes};
  Lanes opened;
  if (!open(stream.at, kWhole, opened)) return &faults::kLaneState;
  Lanes lanes = opened;  // its address never escapes, so it stays in registers
  const Look look = load_look(table);
  const __m512 scale = _mm512_set1_ps(target.scale);
  StreamEnd end;
  Fault fault = nullptr;
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
    if (!advance(stream, static_cast<std::uint32_t>(from - at))) return &faults::kTruncated;
    if (fault != nullptr) return fault;
  }
  if constexpr (kDeliver == Deliver::kStream) _mm_sfence();
  return stream.at == stream.begin ? close(lanes) : &faults::kBytesLeft;
}

// A whole block of a whole chunk while it is decoded.
struct WholeBlock {
  Stream stream;
  StreamEnd end;
  Lanes lanes;
};

[[gnu::always_inline]] inline bool open_block(const BlockBytes& body, WholeBlock& block) noexcept {
  block.stream = {body.at, body.at + body.stream_bytes};
  Lanes opened;
  if (!open(block.stream.at, true, opened)) return false;
  block.lanes = opened;
  return true;
}

// Reads the next stretch. False if that has a fault.
template <Deliver kDeliver>
[[gnu::always_inline]] inline bool read_stretch(const DecodeTable& table, const Look& look, __m512 scale,
                                                WholeBlock& block, float* slot) noexcept {
  const std::byte* const from = readable(block.stream, block.end);
  const std::byte* at = from;
  fetch_early<kDeliver>(at, slot);
  const Fault fault =
      decode_stretch<true, false, kDeliver>(table, look, block.lanes, kMaxStretch, at, scale, slot);
  return advance(block.stream, static_cast<std::uint32_t>(from - at)) && fault == nullptr;
}

template <Deliver kDeliver>
bool decode_by_turns(const BlockBytes (&bodies)[2], const DecodeTable& table,
                     const Target (&targets)[2]) noexcept {
  const Look look = load_look(table);
  const __m512 scale = _mm512_set1_ps(targets[0].scale);
  WholeBlock first;
  WholeBlock second;
  bool legal = open_block(bodies[0], first) && open_block(bodies[1], second);
  for (std::uint32_t begin = 0; legal && begin < kBlockElements; begin += kMaxStretch) {
    legal = read_stretch<kDeliver>(table, look, scale, first, targets[0].slot + begin) &&
            read_stretch<kDeliver>(table, look, scale, second, targets[1].slot + begin);
  }
  if constexpr (kDeliver == Deliver::kStream) _mm_sfence();
  const bool all_read = first.stream.at == first.stream.begin && second.stream.at == second.stream.begin;
  return legal && all_read && close(first.lanes) == nullptr && close(second.lanes) == nullptr;
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

bool decode_two(const BlockBytes (&bodies)[2], const DecodeTable& table, const Target (&targets)[2]) {
  if (!table.in_bytes) return false;  // lanes of mantissas leave nothing to wait for
  return for_target<64>(
      targets[0], [&]<Deliver kDeliver>() { return decode_by_turns<kDeliver>(bodies, table, targets); });
}

void decode_stored(const std::byte* payload, const Target& target) {
  for_target<64>(target, [&]<Deliver kDeliver>() { hand_over<kDeliver>(payload, target); });
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
