// The kernels of twobit. REQUIRES of all: a threshold > 0, buffers of `count` values, payload of
// ceil(count / 4) bytes, and the thread in a FloatEnvironment.
#pragma once

#include <cstdint>

#include "codecs/kernels/elementwise.h"
#include "codecs/target_id.h"

namespace deltawire::twobit {

inline constexpr unsigned kBits = 2;
inline constexpr std::uint64_t kPerByte = 4;

using Kernels = ElementKernels<float>;  // the threshold

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::twobit
