// The kernels of bf16. REQUIRES of all: buffers of `count` values, payload of 2 * count bytes, and the
// thread in a FloatEnvironment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/target_id.h"

namespace deltawire::bf16 {

inline constexpr std::uint64_t kValueBytes = 2;

struct Kernels {
  // payload = rounded(in + residual); residual = what the rounding left. `residual` may be null: 0, and not
  // written.
  void (*encode)(const float* in, float* residual, std::uint64_t count, std::byte* payload);

  // slot = scale * value; with scale 1 the value's bits as they are.
  void (*decode_overwrite)(const std::byte* payload, std::uint64_t count, float scale, float* slot);

  // slot = slot + scale * value, two roundings.
  void (*decode_accumulate)(const std::byte* payload, std::uint64_t count, float scale, float* slot);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::bf16
