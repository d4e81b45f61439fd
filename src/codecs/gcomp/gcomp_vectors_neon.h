// What encoding and decoding for NEON share: sixteen values at a time, their bits in four vectors of words.
// What is a small number, as a code's length or an exponent, is a byte of one vector, in columns: byte 4 i +
// v belongs to word i of vector v, whose value is 4 v + i. So a shift brings it into the words of any vector,
// and shifts by words look at no more than the lowest byte.
#pragma once

#include <cstdint>

#include <arm_neon.h>

#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

inline constexpr std::uint32_t kVectors = 4;
inline constexpr std::uint32_t kVectorWords = 4;
inline constexpr std::uint32_t kTogether = kVectors * kVectorWords;
inline constexpr std::uint32_t kGroups = kMaxLanes / kTogether;  // of lanes

using Words = uint32x4_t[kVectors];

// Where the byte of value i lies, and the other way round.
[[gnu::always_inline]] constexpr std::uint32_t column_of(std::uint32_t i) noexcept {
  return i % kVectorWords * kVectors + i / kVectorWords;
}

alignas(16) inline constexpr std::uint8_t kColumns[kTogether] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                                 2, 6, 10, 14, 3, 7, 11, 15};

// Bytes in columns, in the order of values; and back.
[[gnu::always_inline]] inline uint8x16_t turned(uint8x16_t bytes) noexcept {
  return vqtbl1q_u8(bytes, vld1q_u8(kColumns));
}

// Which bytes in columns belong to the first `count` values.
[[gnu::always_inline]] inline uint8x16_t first_values(std::uint32_t count) noexcept {
  const std::uint32_t most = count < kTogether ? count : kTogether;
  return vcltq_u8(vld1q_u8(kColumns), vdupq_n_u8(static_cast<std::uint8_t>(most)));
}

[[gnu::always_inline]] inline uint8x16_t load_bytes(const void* from) noexcept {
  return vld1q_u8(static_cast<const std::uint8_t*>(from));
}

[[gnu::always_inline]] inline void store_bytes(void* to, uint8x16_t bytes) noexcept {
  vst1q_u8(static_cast<std::uint8_t*>(to), bytes);
}

// The lowest bytes of words.
[[gnu::always_inline]] inline uint8x16_t low_bytes(const Words& words) noexcept {
  const uint32x4_t two = vsliq_n_u32(words[0], words[1], 8);
  return vreinterpretq_u8_u32(vsliq_n_u32(vsliq_n_u32(two, words[2], 16), words[3], 24));
}

// Bits 23 to 30.
[[gnu::always_inline]] inline uint8x16_t exponents_of(const Words& bits) noexcept {
  const uint32x4_t two = vsriq_n_u32(vshlq_n_u32(bits[3], 1), vshlq_n_u32(bits[2], 1), 8);
  const uint32x4_t three = vsriq_n_u32(two, vshlq_n_u32(bits[1], 1), 16);
  return vreinterpretq_u8_u32(vsriq_n_u32(three, vshlq_n_u32(bits[0], 1), 24));
}

// The bytes of vector v, lowest in their words.
[[gnu::always_inline]] inline uint32x4_t lowest(uint8x16_t columns, unsigned v) noexcept {
  const uint32x4_t words = vreinterpretq_u32_u8(columns);
  switch (v) {
    case 0: return words;
    case 1: return vshrq_n_u32(words, 8);
    case 2: return vshrq_n_u32(words, 16);
    default: return vshrq_n_u32(words, 24);
  }
}

// The same, highest.
[[gnu::always_inline]] inline uint32x4_t highest(uint8x16_t columns, unsigned v) noexcept {
  const uint32x4_t words = vreinterpretq_u32_u8(columns);
  switch (v) {
    case 0: return vshlq_n_u32(words, 24);
    case 1: return vshlq_n_u32(words, 16);
    case 2: return vshlq_n_u32(words, 8);
    default: return words;
  }
}

// Words shifted by the signed bytes of vector v: to the left by what is above 0, to the right by what is
// below.
[[gnu::always_inline]] inline uint32x4_t shifted(uint32x4_t words, uint8x16_t columns, unsigned v) noexcept {
  return vshlq_u32(words, vreinterpretq_s32_u32(lowest(columns, v)));
}

[[gnu::always_inline]] inline uint8x16_t negated(uint8x16_t bytes) noexcept {
  return vreinterpretq_u8_s8(vnegq_s8(vreinterpretq_s8_u8(bytes)));
}

// A table of numbers of 16 bits, as two of bytes.
struct Planes {
  alignas(64) std::uint8_t of[2][256];
};

// Looks up 64 bytes in both. kQuarters: of the tables, those that are used.
template <unsigned kQuarters>
[[gnu::always_inline]] inline void look_up(const Planes& planes, const uint8x16_t (&places)[kGroups],
                                           uint8x16_t (&first)[kGroups],
                                           uint8x16_t (&second)[kGroups]) noexcept {
  constexpr unsigned kQuarter = 64;
#pragma GCC unroll 4
  for (unsigned quarter = 0; quarter < kQuarters; ++quarter) {
    const uint8x16x4_t of_first = vld1q_u8_x4(planes.of[0] + quarter * kQuarter);
    const uint8x16x4_t of_second = vld1q_u8_x4(planes.of[1] + quarter * kQuarter);
#pragma GCC unroll 4
    for (unsigned g = 0; g < kGroups; ++g) {
      if (quarter == 0) {
        first[g] = vqtbl4q_u8(of_first, places[g]);
        second[g] = vqtbl4q_u8(of_second, places[g]);
      } else {  // a place in another quarter is none in this one
        const uint8x16_t place =
            vsubq_u8(places[g], vdupq_n_u8(static_cast<std::uint8_t>(quarter * kQuarter)));
        first[g] = vqtbx4q_u8(first[g], of_first, place);
        second[g] = vqtbx4q_u8(second[g], of_second, place);
      }
    }
  }
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
