// Values as whole multiples of a step, -127 to 127 of them in a byte each (src/codecs/int8/spec.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/kernels/steps.h"

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
