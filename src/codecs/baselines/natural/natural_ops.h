// The kernels of natural. REQUIRES of all: buffers of `count` values, a chunk of `count` exponents and then
// their signs, 8 in a byte, and the thread in a FloatEnvironment. No kernel allocates, locks or keeps
// anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/float_bits.h"
#include "codecs/kernels/addends.h"
#include "codecs/kernels/draws.h"
#include "codecs/target_id.h"

namespace deltawire::natural {

inline constexpr unsigned kMantissaBits = 23;
inline constexpr std::uint32_t kLargestExponent = 254;     // of 2^127
inline constexpr std::uint32_t kLargestBits = 0x7F000000;  // 2^127: what is above may be rounded up to Inf

struct Kernels {
  // left = x where that is wanted. Returns the bits of the largest |x|; at least kInfinityBits if any isn't
  // finite.
  std::uint32_t (*sum_up)(const Addends& x);

  // chunk = x, each rounded to a power of two by its draw; left, where that is wanted, = what that leaves.
  // REQUIRES: no |x| is above 2^127.
  void (*encode)(const Addends& x, const Draws& draws, std::byte* chunk);

  // The index of the first element that no encoder writes, or `count`.
  std::uint64_t (*find_bad_code)(const std::byte* chunk, std::uint64_t count);

  // slot = scale * value.
  void (*decode_overwrite)(const std::byte* chunk, std::uint64_t count, float scale, float* slot);

  // slot = slot + scale * value, two roundings; a value of 0 leaves the slot as it is.
  void (*decode_accumulate)(const std::byte* chunk, std::uint64_t count, float scale, float* slot);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::natural
