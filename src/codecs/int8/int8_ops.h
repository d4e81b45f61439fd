// The kernels of int8. REQUIRES of all: buffers of `count` values, payload of `count` bytes, and the thread
// in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/kernels/addends.h"
#include "codecs/kernels/steps.h"
#include "codecs/target_id.h"

namespace deltawire::int8 {

struct Kernels {
  // payload = codes of x at `step`; left, where that is wanted, = what they leave. REQUIRES: no |x| is larger
  // than the one for which step_for() made the step.
  void (*encode)(const Addends& x, float step, std::byte* payload);

  // The first byte that no encoder writes, or `count`: -128, and where `zeros_only` everything but 0.
  std::uint64_t (*find_bad_code)(const std::byte* payload, std::uint64_t count, bool zeros_only);

  // slot = scale * (code * step), two roundings. Returns false if a code is -128: what is in the slot then
  // doesn't matter. Here and below.
  bool (*decode_overwrite)(const std::byte* payload, std::uint64_t count, float step, float scale,
                           float* slot);

  // slot = slot + scale * (code * step), three roundings.
  bool (*decode_accumulate)(const std::byte* payload, std::uint64_t count, float step, float scale,
                            float* slot);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::int8
