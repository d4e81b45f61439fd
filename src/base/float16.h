// Conversions between 16-bit floating-point numbers and float32.
#pragma once

#include <cstdint>
#include <span>

#include "base/bit_functions.h"

namespace deltawire {

enum class DType : std::uint8_t;  // tensor.h

// Rounds to nearest even with integer arithmetic: adding 0x7FFF, and 1 more if the kept part is odd, carries
// exactly when the nearest (or, at a tie, the even) neighbour is the upper one; past the largest finite value
// the carry gives Inf, as IEEE 754 says. A NaN could carry into Inf, so it is handled first, and loses its
// payload.
[[gnu::always_inline]] inline std::uint16_t bf16_of(std::uint32_t bits) noexcept {
  const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  const std::uint32_t nan = (bits >> 16 & 0x8000) | 0x7FC0;
  return static_cast<std::uint16_t>(chosen((bits & kMagnitudeMask) > kInfinityBits, nan, rounded));
}

[[gnu::always_inline]] inline std::uint32_t bits_of_bf16(std::uint16_t value) noexcept {
  return std::uint32_t{value} << 16;
}

// IEEE 754-2019, binary16. As above; REQUIRES: a FloatEnvironment, because subnormals use its rounding.
std::uint16_t f16_of(std::uint32_t bits) noexcept;
std::uint32_t bits_of_f16(std::uint16_t value) noexcept;

// The index of the first finite value that overflows in `dtype`, or the number of values.
std::uint64_t first_beyond(std::span<const float> values, DType dtype) noexcept;

// `count` values of `dtype` as float32, exactly.
void widen(const void* from, DType dtype, std::uint64_t count, float* to) noexcept;

// The same of 16-bit values, each with an addend. REQUIRES: a FloatEnvironment.
void widen_and_add(const void* from, DType dtype, std::uint64_t count, const float* addends,
                   float* to) noexcept;

// Converts float32 values to `dtype`, rounded to nearest even, or to infinity beyond its largest value.
// Returns the index of the first finite value that becomes infinite, or `count`. REQUIRES: a
// FloatEnvironment.
std::uint64_t narrow(const float* from, std::uint64_t count, DType dtype, void* to) noexcept;

}  // namespace deltawire
