// Whole multiples of a step: what codecs of evenly spaced values share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"

namespace deltawire {

// The codes are -`code` ... `code`.
struct LargestCode {
  int code = 0;
  std::uint32_t step = 0;  // bits of the largest step whose `code`-fold is finite
};

inline constexpr LargestCode kLargestOf8Bits = {127, 0x7C010203};
inline constexpr LargestCode kLargestOf4Bits = {7, 0x7E124924};

// The smallest float that takes `largest` to a code of at most most.code in exact arithmetic, but never one
// beyond most.step. 0 for 0. REQUIRES: finite, >= 0.
[[gnu::always_inline]] inline float smallest_step(float largest, const LargestCode& most) noexcept {
  const float nearest = largest / static_cast<float>(most.code);
  auto bits = bit_cast<std::uint32_t>(nearest);
  // Exact: 24 bits times 7 fit a float64.
  if (static_cast<double>(nearest) * most.code < static_cast<double>(largest)) ++bits;
  return bit_cast<float>(bits < most.step ? bits : most.step);
}

// The whole number nearest to x / step, ties to even. REQUIRES: step > 0, and a quotient below 2^31.
//
// The quotient is in float64 because there no rounding can make a tie: x / step is k + 1/2, or differs from
// it by at least 2^-25, as x near such a point is a multiple of half the last place of step.
[[gnu::always_inline]] inline std::int32_t nearest_multiple(float x, float step) noexcept {
  // Added to a float64 below 2^51 in magnitude it rounds to a whole number, ties to even, and leaves that
  // number in the lowest bits, in two's complement.
  constexpr double kRoundToWhole = 0x1.8p52;
  const double whole = static_cast<double>(x) / static_cast<double>(step) + kRoundToWhole;
  return static_cast<std::int32_t>(bit_cast<std::uint64_t>(whole) & 0xFFFFFFFF);
}

}  // namespace deltawire

// Codes of a byte each, -127 to 127 (src/codecs/int8/spec.md).
namespace deltawire::int8 {

inline constexpr std::byte kUnusedCode{0x80};  // -128
inline constexpr std::uint32_t kLargestStep = kLargestOf8Bits.step;

[[gnu::always_inline]] inline float code_value(std::byte code) noexcept {
  return static_cast<float>(static_cast<std::int8_t>(code));
}

// The step where the largest |x| is `largest`.
[[gnu::always_inline]] inline float step_for(float largest) noexcept {
  return smallest_step(largest, kLargestOf8Bits);
}

// REQUIRES: step > 0, made for an |x| at least as large.
[[gnu::always_inline]] inline std::byte code_of(float x, float step) noexcept {
  return static_cast<std::byte>(nearest_multiple(x, step));
}

}  // namespace deltawire::int8
