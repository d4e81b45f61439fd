// The kernels of zlib: they lay bytes out, which a library then compresses.
#pragma once

#include "codecs/kernels/byte_planes.h"
#include "codecs/target_id.h"

namespace deltawire::zlib {

using Kernels = PlaneKernels;

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::zlib
