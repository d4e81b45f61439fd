// The kernels of bf16 and fp16. REQUIRES of all: buffers of `count` values, payload of 2 * count bytes, and
// the thread in a FloatEnvironment.
#pragma once

#include <cstdint>

#include "codecs/kernels/elementwise.h"
#include "codecs/target_id.h"

namespace deltawire::halves {

inline constexpr std::uint64_t kValueBytes = 2;

struct Kernels {
  ElementKernels<> bf16;
  ElementKernels<> fp16;
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::halves
