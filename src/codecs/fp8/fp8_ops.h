// The kernels of fp8. REQUIRES of all: the thread in a FloatEnvironment, and a chunk of the scales of all
// blocks, a byte each, and then all codes, which are finite numbers. No kernel allocates, locks or keeps
// anything.
#pragma once

#include "codecs/kernels/blocks.h"
#include "codecs/kernels/minifloat.h"
#include "codecs/target_id.h"

namespace deltawire::fp8 {

using Shape = MinifloatBlocks;
using Kernels = BlockKernels<Shape>;

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::fp8
