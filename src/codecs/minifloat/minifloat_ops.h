// The kernels of fp8 and fp4: floats of few bits, in blocks that share a power of two. REQUIRES of all: the
// thread in a FloatEnvironment, and a chunk of the scales of all blocks, a byte each, and then all codes,
// which are finite numbers: a byte each, or two a byte, that of an even element in the lower half. No kernel
// allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/float_bits.h"
#include "codecs/kernels/addends.h"
#include "codecs/kernels/blocks.h"
#include "codecs/target_id.h"

namespace deltawire::minifloat {

// From the highest bit a code has a sign, an exponent and a mantissa.
struct Minifloat {
  unsigned mantissa = 0;          // bits of it
  unsigned bias = 0;              // of the exponent
  unsigned largest = 0;           // code of the largest number, without sign; none above it is valid
  unsigned largest_exponent = 0;  // of that number
  // The largest significand that still gets this exponent, as float32's 23 bits behind the point: that of the
  // largest number, or more where beyond it the error is no larger than between two numbers.
  std::uint32_t reach = 0;
};

// How values are coded.
struct Shape {
  Minifloat format;
  std::uint32_t block = 0;  // elements that share a power of two: an even number
  unsigned bits = 0;        // of a code: 8 or 4

  // Of a scale's byte: the largest number is finite with it.
  [[gnu::always_inline]] unsigned largest_scale() const noexcept { return 254 - format.largest_exponent; }
};

// 2^exponent. REQUIRES: -127 <= exponent <= 127.
[[gnu::always_inline]] inline float power_of_two(int exponent) noexcept {
  if (exponent == -127) return 0x1p-127F;  // subnormal
  return bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// The byte of the smallest scale with which the magnitude `largest`, given by its bits, is within the
// format's reach; the largest byte where none is.
[[gnu::always_inline]] inline unsigned minifloat_scale(std::uint32_t largest, const Shape& shape) noexcept {
  // Carries into the exponent where the significand is beyond reach.
  const std::uint32_t field = (largest + (0x7FFFFF - shape.format.reach)) >> 23;
  const unsigned exponent = shape.format.largest_exponent;
  const unsigned scale = field > exponent ? field - exponent : 0;
  return scale < shape.largest_scale() ? scale : shape.largest_scale();
}

// The code nearest to |y|, ties to even; of what is beyond the largest number, that. Without the sign.
[[gnu::always_inline]] inline std::uint32_t minifloat_code(float y, const Minifloat& format) noexcept {
  const std::uint32_t magnitude = bit_cast<std::uint32_t>(y) & kMagnitudeMask;
  const unsigned dropped = 23 - format.mantissa;
  const std::uint32_t bias = 127 - format.bias;
  const std::uint32_t below_half = (1U << (dropped - 1)) - 1;
  const std::uint32_t normal =
      (magnitude - (bias << 23) + below_half + (magnitude >> dropped & 1)) >> dropped;
  // The last bit of this sum is the format's smallest number.
  const float ruler = power_of_two(24 - static_cast<int>(format.bias + format.mantissa));
  const std::uint32_t subnormal =
      bit_cast<std::uint32_t>(bit_cast<float>(magnitude) + ruler) - bit_cast<std::uint32_t>(ruler);
  const auto code = static_cast<std::int32_t>(chosen(magnitude >= (bias + 1) << 23, normal, subnormal));
  const auto largest = static_cast<std::int32_t>(format.largest);
  return static_cast<std::uint32_t>(code < largest ? code : largest);
}

// The number of a code without sign, with `sign`: 1 for negative numbers, 0 for others.
[[gnu::always_inline]] inline float minifloat_number(std::uint32_t code, std::uint32_t sign,
                                                     const Minifloat& format) noexcept {
  const unsigned dropped = 23 - format.mantissa;
  const std::uint32_t normal = (code << dropped) + ((127 - format.bias) << 23);
  // Signed: there are instructions for it.
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(code)) *
                          power_of_two(1 - static_cast<int>(format.bias + format.mantissa));
  const std::uint32_t number =
      chosen(code >> format.mantissa > 0, normal, bit_cast<std::uint32_t>(subnormal));
  return bit_cast<float>(number | sign << 31);
}

inline constexpr std::uint64_t kLargestBlock = 1024;

// codes = those of a block, a byte each, with the sign in bit `sign`; left, where that is wanted, = what they
// leave. Returns the byte of the block's scale.
[[gnu::always_inline]] inline std::byte encode_minifloats(const Addends& x, const Shape& shape, unsigned sign,
                                                          std::byte* codes) noexcept {
  const std::uint64_t count = x.count;
  const Minifloat format = shape.format;
  float* const left = x.left;
  // `left` may be `in` or `residual`, and a loop that reads and writes the same memory isn't vectorized.
  float sums[kLargestBlock];
  for (std::uint64_t i = 0; i < count; ++i) sums[i] = sum_at(x, i);
  const unsigned scale = minifloat_scale(largest_magnitude(sums, nullptr, count), shape);
  // Exact, or so small that it is coded as 0.
  const float inverse = power_of_two(127 - static_cast<int>(scale));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint32_t negative = bit_cast<std::uint32_t>(sums[i]) >> 31;
    codes[i] = static_cast<std::byte>(minifloat_code(sums[i] * inverse, format) | negative << sign);
  }
  if (left == nullptr) return static_cast<std::byte>(scale);
  const float unit = power_of_two(static_cast<int>(scale) - 127);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto code = static_cast<std::uint32_t>(codes[i]);
    left[i] = sums[i] - minifloat_number(code & ((1U << sign) - 1), code >> sign, format) * unit;
  }
  return static_cast<std::byte>(scale);
}

// Calls store(i, value) for each value of a block with these codes, a byte each. Exact: a number of few bits
// times a power of two.
template <class Store>
[[gnu::always_inline]] inline void decode_minifloats(const std::byte* codes, std::uint64_t count,
                                                     std::byte scale, Minifloat format, unsigned sign,
                                                     Store store) noexcept {
  const float unit = power_of_two(static_cast<int>(scale) - 127);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto code = static_cast<std::uint32_t>(codes[i]);
    store(i, minifloat_number(code & ((1U << sign) - 1), code >> sign, format) * unit);
  }
}

using Kernels = BlockKernels<Shape>;

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::minifloat
