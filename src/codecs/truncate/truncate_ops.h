// The kernels of truncate.
//
// REQUIRES of all: kFewestBits <= bits <= kMostBits, buffers of `count` values, payload of bytes_of(count,
// bits), and the thread in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/target_id.h"

namespace deltawire::truncate {

inline constexpr unsigned kFewestBits = 10;  // sign, exponent, and a bit by which NaN differs from Inf
inline constexpr unsigned kMostBits = 31;

struct Kernels {
  // payload = the upper `bits` bits of each in + residual; left = what was cut off, in the residual's place
  // or apart from it, 0 where NaN or Inf. `residual` may be null: 0, and then `left` is.
  void (*encode)(const float* in, const float* residual, float* left, std::uint64_t count, unsigned bits,
                 std::byte* payload);

  // slot = scale * value; with scale 1 the value's bits as they are.
  void (*decode_overwrite)(const std::byte* payload, std::uint64_t count, unsigned bits, float scale,
                           float* slot);

  // slot = slot + scale * value, two roundings.
  void (*decode_accumulate)(const std::byte* payload, std::uint64_t count, unsigned bits, float scale,
                            float* slot);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::truncate
