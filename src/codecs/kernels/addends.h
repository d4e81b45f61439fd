// What kernels code is a sum: the values of this step, and what earlier ones left to send.
#pragma once

#include <cstdint>

#include "base/float_bits.h"

namespace deltawire {

// x = in + residual.
struct Addends {
  const float* in = nullptr;
  const float* residual = nullptr;  // null: x = in
  float* left = nullptr;            // where a kernel's result goes: in place or apart. Null: nowhere
  std::uint64_t count = 0;
};

[[gnu::always_inline]] inline float sum_at(const Addends& x, std::uint64_t i) noexcept {
  return x.residual != nullptr ? x.in[i] + x.residual[i] : x.in[i];
}

// `count` of them, from element `at` on.
[[gnu::always_inline]] inline Addends some_of(const Addends& x, std::uint64_t at,
                                              std::uint64_t count) noexcept {
  return {x.in + at, x.residual != nullptr ? x.residual + at : nullptr,
          x.left != nullptr ? x.left + at : nullptr, count};
}

// left = x where that is wanted. Returns the bits of the largest |x|; at least kInfinityBits if any x isn't
// finite.
[[gnu::always_inline]] inline std::uint32_t add_up(const Addends& x) noexcept {
  if (x.left == nullptr) return largest_magnitude(x.in, x.residual, x.count);
  std::uint32_t largest = 0;
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    const std::uint32_t bits = magnitude_bits(sum);
    largest = bits > largest ? bits : largest;
    x.left[i] = sum;
  }
  return largest;
}

}  // namespace deltawire
