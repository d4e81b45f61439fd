// The kernels of fp4. REQUIRES of all: the thread in a FloatEnvironment, and a chunk of the scales of all
// blocks, a byte each, and then all codes, two a byte, that of an even element in the lower half. No kernel
// allocates, locks or keeps anything.
#pragma once

#include "codecs/kernels/blocks.h"
#include "codecs/kernels/minifloat.h"
#include "codecs/target_id.h"

namespace deltawire::fp4 {

using Shape = MinifloatBlocks;
using Kernels = BlockKernels<Shape>;

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::fp4
