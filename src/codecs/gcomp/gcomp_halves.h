// Values of 16 bits, in float32: the rounding before gcomp's coding, and what it leaves.
#pragma once

#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp {

// halves[i] = in + residual as the chunk's precision holds it: the nearest, ties to even; of what is beyond
// the largest finite number, that.
void round_to_halves(const Values& chunk, float* halves) noexcept;

// The residual = in + residual - halves + left, where `left` is what coding the halves left. 0 for NaN and
// Inf.
void keep_left_over(const Values& chunk, const float* halves, const float* left) noexcept;

}  // namespace deltawire::gcomp
