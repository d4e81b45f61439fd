// The kernels of truncate. REQUIRES of all: kFewestBits <= bits <= kMostBits, buffers of `count` values,
// payload of ceil(count * bits / 8) bytes, and the thread in a FloatEnvironment.
#pragma once

#include "codecs/kernels/elementwise.h"
#include "codecs/target_id.h"

namespace deltawire::truncate {

inline constexpr unsigned kFewestBits = 10;  // sign, exponent, and a bit by which NaN differs from Inf
inline constexpr unsigned kMostBits = 31;

using Kernels = ElementKernels<unsigned>;  // the bits of a code

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::truncate
