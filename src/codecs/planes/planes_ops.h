// The kernels of codecs that give the bytes of float32 values to a general compressor: value by value, or in
// planes, bytes of equal significance together, where equal bytes are near each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/kernels/addends.h"
#include "codecs/target_id.h"

namespace deltawire::planes {

// With `planes`, byte p of value i, from the lowest on, is byte p * count + i; else 4 * i + p. REQUIRES of
// all: 4 * count bytes, and the thread in a FloatEnvironment.
struct Kernels {
  // bytes = those of in + residual, or of in bit for bit where there is no residual; left = 0 where that is
  // wanted.
  void (*split)(const Addends& x, bool planes, std::byte* bytes);

  // slot = scale * value; with scale 1 the value's bits as they are.
  void (*join_overwrite)(const std::byte* bytes, std::uint64_t count, bool planes, float scale, float* slot);

  // slot = slot + scale * value, two roundings.
  void (*join_accumulate)(const std::byte* bytes, std::uint64_t count, bool planes, float scale, float* slot);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::planes
