// Values whose lowest bits of mantissa are 0, as a difference of two numbers that are close to each other has
// them: lossless=on codes such a chunk by levels that drop nothing but zeros.
#pragma once

#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_table.h"

namespace deltawire::gcomp {

// The same chunk by levels, and their table in `choice`, where that is at least half a bit a value smaller
// than the chunk by `choice` (spec.md, 6.6); otherwise the chunk as it is. Writes to `room`, which has as
// many numbers as the chunk. REQUIRES: a rule that keeps everything of float32, and no residual.
Values by_low_zeros(const Kernels& kernels, const Values& chunk, float* room, TableChoice& choice);

}  // namespace deltawire::gcomp
