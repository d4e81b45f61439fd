// Values as whole multiples of a step, -127 to 127 of them in a byte each (src/codecs/int8/spec.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"

namespace deltawire::int8 {

inline constexpr int kLargestCode = 127;
inline constexpr std::byte kUnusedCode{0x80};              // -128
inline constexpr std::uint32_t kLargestStep = 0x7C010203;  // bits of the largest step: 127 of it are finite

[[gnu::always_inline]] inline float code_value(std::byte code) noexcept {
  return static_cast<float>(static_cast<std::int8_t>(code));
}

// The step where the largest |x| is `largest`: the smallest float that takes `largest` to a code of at most
// 127 in exact arithmetic, but never one whose 127-fold is beyond float32. 0 for 0. REQUIRES: finite, >= 0.
[[gnu::always_inline]] inline float step_for(float largest) noexcept {
  const float nearest = largest / static_cast<float>(kLargestCode);
  auto bits = bit_cast<std::uint32_t>(nearest);
  // Exact: 24 bits times 7 fit a float64.
  if (static_cast<double>(nearest) * kLargestCode < static_cast<double>(largest)) ++bits;
  return bit_cast<float>(bits < kLargestStep ? bits : kLargestStep);
}

// Added to a float64 below 2^51 in magnitude it rounds to a whole number, ties to even, and leaves that
// number in the lowest bits, in two's complement.
inline constexpr double kRoundToWhole = 0x1.8p52;

// The quotient is in float64 because there no rounding can make a tie: x / step is k + 1/2, or differs from
// it by at least 2^-25, as x near such a point is a multiple of half the last place of step. REQUIRES: step >
// 0.
[[gnu::always_inline]] inline std::byte code_of(float x, float step) noexcept {
  const double whole = static_cast<double>(x) / static_cast<double>(step) + kRoundToWhole;
  return static_cast<std::byte>(bit_cast<std::uint64_t>(whole) & 0xFF);
}

}  // namespace deltawire::int8
