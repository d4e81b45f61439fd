// A bit for each element, lowest first: 1 where it is negative. One of two values stands for it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deltawire {

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

}  // namespace deltawire
