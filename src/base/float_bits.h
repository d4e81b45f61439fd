// The bits of a float32. Those of |x| order as the values do, with Inf and NaN on top.
#pragma once

#include <cstdint>

#include "base/bit_functions.h"

namespace deltawire {

inline constexpr std::uint32_t kSignBit = 0x80000000;
inline constexpr std::uint32_t kMagnitudeMask = 0x7FFFFFFF;
inline constexpr std::uint32_t kInfinityBits = 0x7F800000;  // this magnitude is Inf, larger ones are NaN

[[gnu::always_inline]] inline std::uint32_t magnitude_bits(float x) noexcept {
  return bit_cast<std::uint32_t>(x) & kMagnitudeMask;
}

// The largest of in + residual; at least kInfinityBits if any isn't finite. `residual` may be null: 0.
[[gnu::always_inline]] inline std::uint32_t largest_magnitude(const float* in, const float* residual,
                                                              std::uint64_t count) noexcept {
  std::uint32_t largest = 0;
  if (residual == nullptr) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint32_t bits = magnitude_bits(in[i]);
      largest = bits > largest ? bits : largest;
    }
    return largest;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = magnitude_bits(in[i] + residual[i]);
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

}  // namespace deltawire
