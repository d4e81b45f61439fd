// The kernels of blockint. REQUIRES of all: the thread in a FloatEnvironment, and a chunk of bytes_of(count)
// bytes: the steps of all blocks, then all codes, none below the least, and 0 where the step is. A value is
// code * step, rounded. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/little_endian.h"
#include "codecs/kernels/blocks.h"
#include "codecs/kernels/steps.h"
#include "codecs/target_id.h"

namespace deltawire::blockint {

inline constexpr std::uint64_t kStepBytes = 4;

// How values are coded.
struct Shape {
  std::uint32_t block = 0;  // elements that share a step: an even number
  unsigned bits = 8;        // of a code: 8 or 4

  [[gnu::always_inline]] LargestCode most() const noexcept {
    return bits == 8 ? kLargestOf8Bits : kLargestOf4Bits;
  }
};

// The code of element i, in two's complement; `codes` is where a chunk's codes begin.
[[gnu::always_inline]] inline int code_at(const std::byte* codes, std::uint64_t i, unsigned bits) noexcept {
  if (bits == 8) return static_cast<std::int8_t>(codes[i]);
  const auto both = static_cast<unsigned>(codes[i / 2]);
  const unsigned code = i % 2 == 0 ? both & 0xF : both >> 4;
  return static_cast<int>(code ^ 8) - 8;
}

// The bits of a block's step; `chunk` is where its steps begin.
[[gnu::always_inline]] inline std::uint32_t step_bits(const std::byte* chunk, std::uint64_t block) noexcept {
  return load_le<std::uint32_t>(chunk + block * kStepBytes);
}

using Kernels = BlockKernels<Shape>;

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::blockint
