// The kernels of fp16.
//
// REQUIRES of all: buffers of `count` values, payload of 2 * count bytes, and the thread in a
// FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/target_id.h"

namespace deltawire::fp16 {

inline constexpr std::uint64_t kValueBytes = 2;

struct Kernels {
  // Whether every in + residual is. `residual` may be null, here and below: 0.
  bool (*all_finite)(const float* in, const float* residual, std::uint64_t count);

  // payload = rounded(in + residual); left = what the rounding left, in the residual's place or apart from
  // it; null where `residual` is. REQUIRES: all finite.
  void (*encode)(const float* in, const float* residual, float* left, std::uint64_t count,
                 std::byte* payload);

  // The index of the first value that no encoder writes, or `count`.
  std::uint64_t (*find_not_finite)(const std::byte* payload, std::uint64_t count);

  // slot = scale * value.
  void (*decode_overwrite)(const std::byte* payload, std::uint64_t count, float scale, float* slot);

  // slot = slot + scale * value, two roundings.
  void (*decode_accumulate)(const std::byte* payload, std::uint64_t count, float scale, float* slot);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::fp16
