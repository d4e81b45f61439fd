#include "codecs/int8/int8_ops.h"
#include "codecs/kernels/steps.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

float step_for(float largest) noexcept {
  return smallest_step(largest, kLargestOf8Bits);
}

extern constexpr Kernels kKernels = {sum_up, encode, find_bad_code, decode_overwrite, decode_accumulate};

}  // namespace deltawire::int8::DELTAWIRE_TARGET
