// The sums of a codec that reads a part twice: for what belongs to the whole part, and then to code it.
#pragma once

#include "base/prefetch.h"
#include "codecs/kernels/addends.h"
#include "deltawire/codec.h"

namespace deltawire {

struct TwoPasses {
  Addends first;   // writes no residual that is in place, so that an error leaves it as it was
  Addends second;  // left = the new residual's place; null: none
};

// Where the new residual lies apart, the first pass leaves the sums there, unless they are there: the second
// then reads one array, not two.
inline TwoPasses two_passes(const PartSource& part) noexcept {
  if (part.left == part.residual) {
    return {{part.in, part.residual, nullptr, part.count}, {part.in, part.residual, part.left, part.count}};
  }
  float* const sums = part.in != part.left ? part.left : nullptr;
  const bool streamed = sums != nullptr && part.count * sizeof(float) >= kStreamedBytes;
  return {{part.in, part.residual, sums, part.count, streamed}, {part.left, nullptr, part.left, part.count}};
}

}  // namespace deltawire
