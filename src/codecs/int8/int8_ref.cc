#include "codecs/int8/int8_ops.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

extern constexpr Kernels kKernels = {sum_up, encode, find_bad_code, decode_overwrite, decode_accumulate};

}  // namespace deltawire::int8::DELTAWIRE_TARGET
