// What kernels code is a sum: the values of this step, and what earlier ones left to send.
#pragma once

#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/target_id.h"

namespace deltawire {

// x = in + residual.
struct Addends {
  const float* in = nullptr;
  const float* residual = nullptr;  // null: x = in
  float* left = nullptr;            // where a kernel's result goes: in place or apart. Null: nowhere
  std::uint64_t count = 0;
  bool streamed = false;  // `left`, apart from both, will have left the caches before it is read
};

[[gnu::always_inline]] inline float sum_at(const Addends& x, std::uint64_t i) noexcept {
  return x.residual != nullptr ? x.in[i] + x.residual[i] : x.in[i];
}

// `count` of them, from element `at` on.
[[gnu::always_inline]] inline Addends some_of(const Addends& x, std::uint64_t at,
                                              std::uint64_t count) noexcept {
  return {x.in + at, x.residual != nullptr ? x.residual + at : nullptr,
          x.left != nullptr ? x.left + at : nullptr, count, x.streamed};
}

// The pass that most codecs begin with.
namespace addends {

struct Kernels {
  // left = x where that is wanted. Returns the bits of the largest |x|; at least kInfinityBits if any x isn't
  // finite. By value: stores of vectors may alias whatever lies in memory.
  std::uint32_t (*add_up)(Addends x);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace addends

}  // namespace deltawire
