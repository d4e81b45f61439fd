// The kernels of int8. REQUIRES of all: buffers of `count` values, payload of `count` bytes, and the thread
// in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/float_bits.h"
#include "codecs/target_id.h"

namespace deltawire::int8 {

inline constexpr std::uint64_t kValueBytes = 1;
inline constexpr int kLargestCode = 127;
inline constexpr std::byte kUnusedCode{0x80};              // -128
inline constexpr std::uint32_t kLargestStep = 0x7C010203;  // bits of the largest step: 127 of it are finite

// The step of a part whose largest |x| is `largest`: the smallest float that takes `largest` to a code of at
// most 127 in exact arithmetic, but never one whose 127-fold is beyond float32. 0 for 0. REQUIRES: finite, >=
// 0.
namespace DELTAWIRE_TARGET {
float step_for(float largest) noexcept;
}

struct Kernels {
  // Bits of the largest |in + residual|; at least kInfinityBits if any isn't finite. `residual` may be null.
  std::uint32_t (*max_magnitude)(const float* in, const float* residual, std::uint64_t count);

  // payload = codes of in + residual at `step`; residual = what they leave. `residual` may be null: 0, and
  // not written. REQUIRES: step finite and >= 0; 0 only where all values are.
  void (*encode)(const float* in, float* residual, std::uint64_t count, float step, std::byte* payload);

  // The first byte that no encoder writes, or `count`: -128, and where `zeros_only` everything but 0.
  std::uint64_t (*find_bad_code)(const std::byte* payload, std::uint64_t count, bool zeros_only);

  // slot = scale * (code * step), two roundings. REQUIRES: no bad code, here and below.
  void (*decode_overwrite)(const std::byte* payload, std::uint64_t count, float step, float scale,
                           float* slot);

  // slot = slot + scale * (code * step), three roundings.
  void (*decode_accumulate)(const std::byte* payload, std::uint64_t count, float step, float scale,
                            float* slot);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::int8
