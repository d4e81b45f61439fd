// The kernels of terngrad. REQUIRES of all: buffers of `count` values, packed bytes as base3.h says, and the
// thread in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/float_bits.h"
#include "codecs/kernels/addends.h"
#include "codecs/kernels/base3.h"
#include "codecs/kernels/draws.h"
#include "codecs/kernels/spread.h"
#include "codecs/target_id.h"

namespace deltawire::terngrad {

inline constexpr std::uint64_t kChunkElements = 40960;
static_assert(kChunkElements % base3::kRowElements == 0);

// What a decoder found wrong with a chunk.
enum class Fault : std::uint8_t {
  kNone,
  kTruncated,        // never: lengths are checked before
  kBadByte,          // a byte above 242
  kBadPad,           // a pad digit other than 1
  kNonzeroWithoutM,  // a digit +1 or -1 where m is 0
};

struct Kernels {
  // left = x where that is wanted. Returns what is known of all |x|.
  Spread (*sum_up)(const Addends& x);

  // packed = the digits of a chunk, each drawn: sign(x) with the chance min(|x|, m) / m, else 0; left, where
  // that is wanted, = what they leave.
  void (*encode)(const Addends& x, const Draws& draws, float m, std::byte* packed);

  // Puts a chunk's values into the slot; on a fault its content is unspecified.
  Fault (*decode)(const std::byte* packed, const base3::RowTarget& target);

  // What decode() finds wrong, without a slot.
  Fault (*check)(const std::byte* packed, std::uint32_t count, bool zeros_only);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::terngrad
