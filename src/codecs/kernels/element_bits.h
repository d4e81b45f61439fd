// A bit for each element, lowest first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"

namespace deltawire {

// 1 where it is negative: one of two values stands for it.

// What stands for the two sides.
struct SideValues {
  float high = 0;  // of what isn't negative
  float low = 0;
};

// REQUIRES: elements are put in order, as the first of eight clears their byte.
[[gnu::always_inline]] inline void put_sign_bit(std::byte* bits, std::uint64_t i, bool negative) noexcept {
  const unsigned before = i % 8 == 0 ? 0 : static_cast<unsigned>(bits[i / 8]);
  bits[i / 8] = static_cast<std::byte>(before | (negative ? 1U : 0U) << (i % 8));
}

[[gnu::always_inline]] inline bool sign_bit(const std::byte* bits, std::uint64_t i) noexcept {
  return (static_cast<unsigned>(bits[i / 8]) >> (i % 8) & 1) != 0;
}

[[gnu::always_inline]] inline float side_value(const std::byte* bits, std::uint64_t i,
                                               SideValues values) noexcept {
  return sign_bit(bits, i) ? values.low : values.high;
}

// The first byte that isn't 0, or `bytes`.
[[gnu::always_inline]] inline std::uint64_t find_set_byte(const std::byte* bits,
                                                          std::uint64_t bytes) noexcept {
  std::uint64_t i = 0;
  while (i < bytes && bits[i] == std::byte{0}) ++i;
  return i;
}

// slot = the side's value.
[[gnu::always_inline]] inline void put_sides(const std::byte* bits, std::uint64_t count, SideValues values,
                                             float* slot) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) slot[i] = side_value(bits, i, values);
}

// slot = slot + the side's value.
[[gnu::always_inline]] inline void add_sides(const std::byte* bits, std::uint64_t count, SideValues values,
                                             float* slot) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) slot[i] += side_value(bits, i, values);
}

// The places of those that are set, as a list.

// What set_bits() may write behind the last place.
inline constexpr std::uint32_t kSetBitsSlack = 4;

// Writes `first` plus the place of each set bit, from the lowest on; returns how many they are. A loop that
// ends behind the last one would be foretold wrong most of the time: of so few, four are written always.
[[gnu::always_inline]] inline std::uint32_t set_bits(std::uint64_t word, std::uint32_t first,
                                                     std::uint32_t* out) noexcept {
  constexpr std::uint64_t kLast = std::uint64_t{1} << 63;  // so that there is a place to be found
  const std::uint32_t bits = popcount(word);
  for (std::uint32_t i = 0; i < kSetBitsSlack; ++i) {
    out[i] = first + countr_zero(word | kLast);
    word &= word - 1;
  }
  if (word != 0) [[unlikely]] {
    for (std::uint32_t i = kSetBitsSlack; i < bits; ++i) {
      out[i] = first + countr_zero(word);
      word &= word - 1;
    }
  }
  return bits;
}

}  // namespace deltawire
