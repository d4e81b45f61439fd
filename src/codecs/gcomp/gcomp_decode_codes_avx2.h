// Reading codes with AVX2: lanes in vectors of 16 halves, codes looked up in registers.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/gcomp/gcomp_decode_ops.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx2.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

constexpr HalfPlaces kHalfPlaces = make_half_places();

// A row of a stretch is 64 values, one of each lane. Bytes of it are in two vectors, of 32 lanes each in
// order; numbers of 16 bits in four, where 2 i has lanes 0 to 7 and 16 to 23 of byte vector i, and 2 i + 1
// the others: so packing and unpacking, which work within halves, keep the order.
constexpr unsigned kByteVectors = kMaxLanes / kBytesAtOnce;
constexpr unsigned kHalfVectors = 2 * kByteVectors;

// In a byte of what is looked up: the row, and above it the length of the code less 1.
constexpr unsigned kLengthShift = 5;

// The table of a chunk: what a code means follows from its first four bits or, where these begin a longer
// code, from the next four as well.
struct CodeTable {
  struct Part {
    alignas(16) std::uint8_t entries[16];
    alignas(16) std::uint8_t widths[16];  // of sign and mantissa
  };

  static constexpr std::uint8_t kLonger = 0x80;  // in `first`: go on in longer[entry - kLonger]

  Part first;
  Part longer[16];
  std::uint32_t longer_count = 0;
};

// In whole chunks, where rows alone are looked up, a tiny value has the escape's row, as it may not be taken
// for zero.
template <bool kWhole>
void make_code_table(const DecodeTable& table, CodeTable& codes) noexcept {
  const auto set = [](CodeTable::Part& part, unsigned at, std::uint32_t entry) {
    const std::uint32_t width = entry >> kEntryWidthShift & kEntryWidthMask;
    std::uint32_t row = entry >> kEntryRowShift;
    if (kWhole && row == 0 && width > 0) row = kEscapeSlot;
    const std::uint32_t length = entry & kEntryLengthMask;
    part.entries[at] = static_cast<std::uint8_t>((length - 1) << kLengthShift | row);
    part.widths[at] = static_cast<std::uint8_t>(width);
  };
  codes.longer_count = 0;
  for (unsigned low = 0; low < 16; ++low) {
    if ((table.entry[low] & kEntryLengthMask) <= 4) {
      set(codes.first, low, table.entry[low]);
      continue;
    }
    codes.first.entries[low] = static_cast<std::uint8_t>(CodeTable::kLonger + codes.longer_count);
    codes.first.widths[low] = 0;
    CodeTable::Part& longer = codes.longer[codes.longer_count++];
    for (unsigned high = 0; high < 16; ++high) set(longer, high, table.entry[low | high << 4]);
  }
}

// What the codes of a row mean.
struct Row {
  __m256i entries[kByteVectors];
  __m256i widths[kByteVectors];  // unless the chunk is whole
};

// By the low bytes of `next`.
template <bool kWhole>
[[gnu::always_inline]] inline Row look_up(const CodeTable& codes,
                                          const __m256i (&next)[kHalfVectors]) noexcept {
  Row row;
  __m256i high[kByteVectors];
  __m256i marks[kByteVectors];
#pragma GCC unroll 2
  for (unsigned i = 0; i < kByteVectors; ++i) {
    const __m256i index = _mm256_packus_epi16(_mm256_and_si256(next[2 * i], all_halves(0xFF)),
                                              _mm256_and_si256(next[2 * i + 1], all_halves(0xFF)));
    const __m256i low = _mm256_and_si256(index, all_bytes(15));
    high[i] = _mm256_and_si256(_mm256_srli_epi16(index, 4), all_bytes(15));
    marks[i] = row.entries[i] = _mm256_shuffle_epi8(byte_table(codes.first.entries), low);
    if constexpr (!kWhole) row.widths[i] = _mm256_shuffle_epi8(byte_table(codes.first.widths), low);
  }
  __m256i mark = all_bytes(CodeTable::kLonger);
  for (std::uint32_t nth = 0; nth < codes.longer_count; ++nth) {
    const CodeTable::Part& longer = codes.longer[nth];
    const __m256i entries = byte_table(longer.entries);
#pragma GCC unroll 2
    for (unsigned i = 0; i < kByteVectors; ++i) {
      const __m256i here = _mm256_cmpeq_epi8(marks[i], mark);
      row.entries[i] = _mm256_blendv_epi8(row.entries[i], _mm256_shuffle_epi8(entries, high[i]), here);
      if constexpr (!kWhole) {
        const __m256i widths = _mm256_shuffle_epi8(byte_table(longer.widths), high[i]);
        row.widths[i] = _mm256_blendv_epi8(row.widths[i], widths, here);
      }
    }
    mark = _mm256_sub_epi8(mark, _mm256_cmpeq_epi8(mark, mark));
  }
  return row;
}

// 2^(16 - length) of the codes in `entries`. The upper half of a product with it is shifted down by the
// length; the lower half of another is what then comes above.
[[gnu::always_inline]] inline void shifts_of(const __m256i (&entries)[kByteVectors],
                                             __m256i (&shifts)[kHalfVectors]) noexcept {
  const __m256i powers = _mm256_setr_epi8(-128, 64, 32, 16, 8, 4, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                          -128, 64, 32, 16, 8, 4, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m256i zero = _mm256_setzero_si256();
#pragma GCC unroll 2
  for (unsigned i = 0; i < kByteVectors; ++i) {
    const __m256i less =
        _mm256_and_si256(_mm256_srli_epi16(entries[i], static_cast<int>(kLengthShift)), all_bytes(7));
    const __m256i upper = _mm256_shuffle_epi8(powers, less);
    shifts[2 * i] = _mm256_unpacklo_epi8(zero, upper);
    shifts[2 * i + 1] = _mm256_unpackhi_epi8(zero, upper);
  }
}

// The lanes of codes. AVX2 can't shift each half by a number of its own, so numbers of bits are powers of
// two, by which halves are multiplied.
struct Lanes {
  __m256i next[kHalfVectors];   // 16 bits of each lane
  __m256i later[kHalfVectors];  // the bits above them
  __m256i held[kHalfVectors];   // 2^(how many these are)
};

// Which of the values of a stretch from `first` on there are, as bytes.
[[gnu::always_inline]] inline __m256i present_bytes(std::uint32_t count, std::uint32_t first) noexcept {
  const std::uint32_t left = count <= first ? 0 : count - first;
  const __m256i places = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,  //
                                          16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
  return _mm256_cmpgt_epi8(all_bytes(left < kBytesAtOnce ? left : kBytesAtOnce), places);
}

// The same of the values of half vector `vector` of a row.
[[gnu::always_inline]] inline __m256i present_halves(std::uint32_t count, unsigned row,
                                                     unsigned vector) noexcept {
  const __m256i bytes = present_bytes(count, kMaxLanes * row + kBytesAtOnce * (vector / 2));
  return vector % 2 == 0 ? _mm256_unpacklo_epi8(bytes, bytes) : _mm256_unpackhi_epi8(bytes, bytes);
}

// What a stretch's codes mean.
struct Codes {
  Row rows[2];
  __m256i shifts[kHalfVectors];  // 2^(16 - length) of what each lane has of them
};

// The next two codes of each lane, or as many as there are values.
template <bool kWhole, bool kTail>
[[gnu::always_inline]] inline void read_codes(const CodeTable& table, const Lanes& lanes, std::uint32_t count,
                                              Codes& codes) noexcept {
  codes.rows[0] = look_up<kWhole>(table, lanes.next);
  shifts_of(codes.rows[0].entries, codes.shifts);
  __m256i next[kHalfVectors];
#pragma GCC unroll 4
  for (unsigned i = 0; i < kHalfVectors; ++i) next[i] = _mm256_mulhi_epu16(lanes.next[i], codes.shifts[i]);
  codes.rows[1] = look_up<kWhole>(table, next);
  __m256i second[kHalfVectors];
  shifts_of(codes.rows[1].entries, second);
#pragma GCC unroll 4
  for (unsigned i = 0; i < kHalfVectors; ++i) {
    const __m256i both = _mm256_mulhi_epu16(codes.shifts[i], second[i]);
    codes.shifts[i] = kTail ? _mm256_blendv_epi8(codes.shifts[i], both, present_halves(count, 1, i)) : both;
  }
  for (unsigned i = 0; kTail && i < 2 * kByteVectors; ++i) {
    Row& row = codes.rows[i / kByteVectors];
    const __m256i present = present_bytes(count, kBytesAtOnce * i);
    row.entries[i % kByteVectors] = _mm256_and_si256(row.entries[i % kByteVectors], present);
    if constexpr (!kWhole)
      row.widths[i % kByteVectors] = _mm256_and_si256(row.widths[i % kByteVectors], present);
  }
}

// Takes what was read off the lanes, and gives new words to those that lack some.
template <bool kTail>
[[gnu::always_inline]] inline void refill(const __m256i (&shifts)[kHalfVectors], std::uint32_t count,
                                          Lanes& lanes, const std::byte*& at) noexcept {
#pragma GCC unroll 2
  for (int vector = kByteVectors - 1; vector >= 0; --vector) {
    const auto first = static_cast<unsigned>(2 * vector);
    __m256i needs[2];
#pragma GCC unroll 2
    for (unsigned i = first; i < first + 2; ++i) {
      __m256i kept = _mm256_mulhi_epu16(lanes.held[i], shifts[i]);
      // Where that is 0, fewer than 16 bits are left: as many as the lower half of the product says.
      __m256i held = _mm256_or_si256(kept, _mm256_mullo_epi16(lanes.held[i], shifts[i]));
      __m256i next = _mm256_or_si256(_mm256_mulhi_epu16(lanes.next[i], shifts[i]),
                                     _mm256_mullo_epi16(lanes.later[i], shifts[i]));
      __m256i later = _mm256_mulhi_epu16(lanes.later[i], shifts[i]);
      if constexpr (kTail) {
        const __m256i present = present_halves(count, 0, i);
        kept = _mm256_blendv_epi8(lanes.held[i], kept, present);
        held = _mm256_blendv_epi8(lanes.held[i], held, present);
        next = _mm256_blendv_epi8(lanes.next[i], next, present);
        later = _mm256_blendv_epi8(lanes.later[i], later, present);
      }
      needs[i - first] = _mm256_cmpeq_epi16(kept, _mm256_setzero_si256());
      lanes.held[i] = held;
      lanes.next[i] = next;
      lanes.later[i] = later;
    }
    const auto mask =
        static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_packs_epi16(needs[0], needs[1])));
    at -= popcount(mask) * kWordBytes;
    const auto words_of = [&](unsigned eight) {
      const std::byte* const begin = at + popcount(mask & ((1U << 8 * eight) - 1)) * kWordBytes;
      return _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(begin)),
                              bytes_of(kHalfPlaces.spread[mask >> 8 * eight & 0xFF]));
    };
    const __m256i words[2] = {_mm256_set_m128i(words_of(2), words_of(0)),
                              _mm256_set_m128i(words_of(3), words_of(1))};
#pragma GCC unroll 2
    for (unsigned i = first; i < first + 2; ++i) {
      const __m256i word = words[i - first];
      lanes.next[i] = _mm256_or_si256(lanes.next[i], _mm256_mullo_epi16(word, lanes.held[i]));
      lanes.later[i] = _mm256_or_si256(lanes.later[i], _mm256_mulhi_epu16(word, lanes.held[i]));
    }
  }
}

// Which of the halves is a lane's: the second and the third eight of 32 change places.
[[gnu::always_inline]] inline unsigned half_of(unsigned lane) noexcept {
  return (lane & ~24U) | (lane & 8) << 1 | (lane & 16) >> 1;
}

// False if a lane has no end bit, or too few bits below it.
inline bool open_lanes(const std::byte* states, Lanes& lanes) noexcept {
  alignas(32) std::uint16_t next[kMaxLanes];
  alignas(32) std::uint16_t later[kMaxLanes];
  alignas(32) std::uint16_t held[kMaxLanes];
  for (unsigned lane = 0; lane < kMaxLanes; ++lane) {
    std::uint32_t bits = 0;
    std::uint32_t count = 0;
    if (!open_lane(states + lane * kStateBytes, kWordBits, bits, count)) return false;
    const unsigned at = half_of(lane);
    next[at] = static_cast<std::uint16_t>(bits);
    later[at] = static_cast<std::uint16_t>(bits >> kWordBits);
    held[at] = static_cast<std::uint16_t>(1U << (count - kWordBits));
  }
  for (unsigned i = 0; i < kHalfVectors; ++i) {
    lanes.next[i] = load_words(next + kVectorHalves * i);
    lanes.later[i] = load_words(later + kVectorHalves * i);
    lanes.held[i] = load_words(held + kVectorHalves * i);
  }
  return true;
}

// Whether all lanes have 16 bits, all zero.
inline bool all_ended(const Lanes& lanes) noexcept {
  __m256i left = _mm256_setzero_si256();
  for (unsigned i = 0; i < kHalfVectors; ++i) {
    left = _mm256_or_si256(left, _mm256_or_si256(lanes.next[i], lanes.later[i]));
    left = _mm256_or_si256(left, _mm256_xor_si256(lanes.held[i], all_halves(1)));
  }
  return _mm256_testz_si256(left, left) != 0;
}

}  // namespace

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
