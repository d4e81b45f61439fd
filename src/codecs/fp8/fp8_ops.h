// The kernels of fp8. REQUIRES of all: the thread in a FloatEnvironment, and a chunk of the scales of all
// blocks, a byte each, and then all codes, which are finite numbers. No kernel allocates, locks or keeps
// anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/kernels/blocks.h"
#include "codecs/target_id.h"

namespace deltawire::fp8 {

// A format of OCP's OFP8. The significand of the largest number is 1.75 in both.
struct Format {
  unsigned mantissa = 0;          // bits of it
  unsigned bias = 0;              // of the exponent
  unsigned largest = 0;           // code of the largest number, without sign; above it are Inf and NaN
  unsigned largest_exponent = 0;  // of that number
};

inline constexpr Format kE4M3 = {3, 7, 0x7E, 8};
inline constexpr Format kE5M2 = {2, 15, 0x7B, 15};

// How values are coded.
struct Shape {
  Format format;
  std::uint32_t block = 0;  // elements that share a scale

  [[gnu::always_inline]] std::uint64_t blocks(std::uint64_t count) const noexcept {
    return count / block + (count % block != 0 ? 1 : 0);
  }
  // Of a scale's byte: the largest number is finite with it.
  [[gnu::always_inline]] unsigned largest_scale() const noexcept { return 254 - format.largest_exponent; }
};

using Kernels = BlockKernels<Shape>;

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::fp8
