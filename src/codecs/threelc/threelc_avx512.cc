// The table for AVX-512 (F, BW, DQ, VL), which codes zero runs as AVX2 does.
#include "codecs/threelc/threelc_avx512.h"

#include <cstddef>
#include <cstdint>

#include "codecs/threelc/threelc_avx2.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_vectors_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

std::uint32_t zero_runs(const std::byte* packed, std::uint32_t bytes, std::byte* out) {
  return zero_runs_by<Block32>(packed, bytes, out);
}

extern constexpr Kernels kKernels = {largest, quantize, zero_runs, rice, decode_chunk};

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
