// Reference kernels: the elements from some magnitude on.
#include <cstdint>

#include "codecs/kernels/addends.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

std::uint32_t sum_up(const Addends& x) {
  return add_up(x);
}

Collected collect(const Addends& x, std::uint64_t from, std::uint32_t least, std::uint32_t* positions,
                  float* values) {
  Collected found{0, from};
  for (; found.next < x.count && found.count < kChunkPositions; ++found.next) {
    const float sum = sum_at(x, found.next);
    positions[found.count] = static_cast<std::uint32_t>(found.next);
    values[found.count] = sum;
    found.count += magnitude_bits(sum) >= least ? 1U : 0U;
  }
  return found;
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
