// Zero runs, 64 packed bytes at a time.
#include <cstddef>
#include <cstdint>

#include "codecs/threelc/threelc_block_neon.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_runs_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

std::uint32_t zero_runs(const std::byte* packed, std::uint32_t bytes, std::byte* out) {
  return zero_runs_by<Block>(packed, bytes, out);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
