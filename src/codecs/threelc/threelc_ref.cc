// The table of kernels. Each stands in a file of its own, threelc_<what>_<target>.cc.
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

extern constexpr Kernels kKernels = {largest, quantize, zero_runs, rice, decode_chunk};

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
