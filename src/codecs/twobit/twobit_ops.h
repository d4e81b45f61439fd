// The kernels of twobit.
//
// REQUIRES of all: buffers of `count` values, payload of packed_bytes(count) bytes, and the thread in a
// FloatEnvironment. No kernel allocates, locks or keeps anything. A whole part is one row of codes, as chunks
// but the last fill their bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/target_id.h"

namespace deltawire::twobit {

inline constexpr std::uint64_t kPerByte = 4;

[[gnu::always_inline]] constexpr std::uint64_t packed_bytes(std::uint64_t count) noexcept {
  return count / kPerByte + (count % kPerByte != 0 ? 1 : 0);
}

struct Kernels {
  // Whether every in + residual is. `residual` may be null, here and below: 0.
  bool (*all_finite)(const float* in, const float* residual, std::uint64_t count);

  // payload = the codes of in + residual; left = what they don't send, in the residual's place or apart from
  // it; null where `residual` is. REQUIRES: all finite, and threshold > 0.
  void (*encode)(const float* in, const float* residual, float* left, std::uint64_t count, float threshold,
                 std::byte* payload);

  // The index of the first code that no encoder writes, one of padding (from `count` on) included; or that
  // behind the last, packed_bytes(count) * kPerByte.
  std::uint64_t (*find_refused)(const std::byte* payload, std::uint64_t count);

  // slot = scale * value.
  void (*decode_overwrite)(const std::byte* payload, std::uint64_t count, float scale, float threshold,
                           float* slot);

  // slot = slot + scale * value, two roundings; a code of 0 leaves the slot's bits.
  void (*decode_accumulate)(const std::byte* payload, std::uint64_t count, float scale, float threshold,
                            float* slot);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::twobit
