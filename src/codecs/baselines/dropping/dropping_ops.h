// The kernels of dropping. REQUIRES of all: the calling thread in a FloatEnvironment. No kernel allocates,
// locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/kernels/addends.h"
#include "codecs/kernels/chunk_bytes.h"
#include "codecs/target_id.h"

namespace deltawire::dropping {

inline constexpr std::uint32_t kValueBytes = 4;

[[gnu::always_inline]] constexpr std::uint32_t bitmap_bytes(std::uint64_t elements) noexcept {
  return static_cast<std::uint32_t>((elements + 7) / 8);
}

// What a decoder found wrong with a chunk.
enum class Fault : std::uint8_t {
  kNone,
  kTruncated,      // the bytes end before the chunk does
  kPadding,        // a set bit behind the last element's
  kTrailingBytes,  // bytes behind the last value
  kValue,          // a value that isn't finite
};

struct Target {
  float* slot = nullptr;  // null: check alone
  float scale = 1;
  bool accumulate = false;
};

struct Kernels {
  // The bits of the largest |x|; at least kInfinityBits if any isn't finite. Writes nothing.
  std::uint32_t (*largest)(const Addends& x);

  // Writes a chunk of those x whose magnitudes have at least the bits `least`; left, where that is wanted, is
  // 0 where one is sent and x elsewhere. Returns the bytes written: at most bitmap_bytes and kValueBytes for
  // each element. REQUIRES: least > 0.
  std::uint32_t (*encode_chunk)(const Addends& x, std::uint32_t least, std::byte* out);

  // Decodes a chunk of `count` elements. Overwriting, those not sent become 0. On a fault the slot's content
  // is unspecified.
  Fault (*decode_chunk)(const ChunkBytes& chunk, std::uint64_t count, const Target& target);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::dropping
