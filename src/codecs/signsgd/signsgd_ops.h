// The kernels of signsgd. REQUIRES of all: buffers of `count` values, payload of ceil(count / 8) bytes, and
// the thread in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/kernels/addends.h"
#include "codecs/kernels/element_bits.h"
#include "codecs/target_id.h"

namespace deltawire::signsgd {

struct Magnitudes {
  std::uint32_t largest = 0;  // bits of the largest; at least kInfinityBits if any x isn't finite
  double sum = 0;
};

struct Kernels {
  // payload = a bit for each x, 1 where it is negative; left = x where that is wanted. Returns what is known
  // of all |x|.
  Magnitudes (*split)(const Addends& x, std::byte* payload);

  // left = what +scale or -scale leaves of x.
  void (*take_scale)(const Addends& x, float scale);

  // The first byte that isn't 0, or `bytes`.
  std::uint64_t (*find_set)(const std::byte* payload, std::uint64_t bytes);

  // slot = value, or -value where the bit is 1.
  void (*decode_overwrite)(const std::byte* payload, std::uint64_t count, float value, float* slot);

  // slot = slot + value, or slot + -value.
  void (*decode_accumulate)(const std::byte* payload, std::uint64_t count, float value, float* slot);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::signsgd
