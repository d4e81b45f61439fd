// Blocks of elements that share a scale or a step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/kernels/addends.h"

namespace deltawire {

// The blocks of so many elements, the last of which may be shorter.
[[gnu::always_inline]] inline std::uint64_t blocks_of(std::uint64_t count, std::uint32_t block) noexcept {
  return count / block + (count % block != 0 ? 1 : 0);
}

// The kernels of a codec whose `Shape` says how values are coded. A chunk has the scales of all blocks, and
// then all codes.
template <class Shape>
struct BlockKernels {
  // left = x where that is wanted. Returns the bits of the largest |x|; at least kInfinityBits if any isn't
  // finite.
  std::uint32_t (*sum_up)(const Addends& x);

  // chunk = scales and codes of x; left, where that is wanted, = what they leave. REQUIRES: all finite.
  void (*encode)(const Addends& x, const Shape& shape, std::byte* chunk);

  // The first block whose scale no encoder writes, or the number of blocks.
  std::uint64_t (*find_bad_scale)(const std::byte* chunk, std::uint64_t count, const Shape& shape);

  // The first element whose code no encoder writes, or `count`.
  std::uint64_t (*find_bad_code)(const std::byte* chunk, std::uint64_t count, const Shape& shape);

  // slot = scale * value.
  void (*decode_overwrite)(const std::byte* chunk, std::uint64_t count, const Shape& shape, float scale,
                           float* slot);

  // slot = slot + scale * value, two roundings.
  void (*decode_accumulate)(const std::byte* chunk, std::uint64_t count, const Shape& shape, float scale,
                            float* slot);
};

}  // namespace deltawire
