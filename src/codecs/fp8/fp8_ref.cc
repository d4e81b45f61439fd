#include <cstdint>

#include "base/bit_functions.h"
#include "base/float_bits.h"
#include "codecs/fp8/fp8_ops.h"

namespace deltawire::fp8::DELTAWIRE_TARGET {

namespace {

// 2^exponent. REQUIRES: -127 <= exponent <= 127.
float power_of_two(int exponent) noexcept {
  if (exponent == -127) return 0x1p-127F;  // subnormal
  return bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// The smallest power of two that takes `largest` to the format's largest number or below it, if it has a
// byte.
unsigned scale_for(std::uint32_t largest, const Shape& shape) noexcept {
  // Carries into the exponent where the significand is above 1.75.
  const std::uint32_t field = (largest + 0x1FFFFF) >> 23;
  const unsigned exponent = shape.format.largest_exponent;
  const unsigned scale = field > exponent ? field - exponent : 0;
  return scale < shape.largest_scale() ? scale : shape.largest_scale();
}

// The code nearest to y, ties to even; of what is beyond the largest number, that.
std::byte code_of(float y, const Format& format) noexcept {
  const auto bits = bit_cast<std::uint32_t>(y);
  const std::uint32_t magnitude = bits & kMagnitudeMask;
  const unsigned dropped = 23 - format.mantissa;
  const std::uint32_t bias = 127 - format.bias;
  std::uint32_t code = 0;
  if (magnitude >> 23 > bias) {
    const std::uint32_t below_half = (1U << (dropped - 1)) - 1;
    code = (magnitude - (bias << 23) + below_half + (magnitude >> dropped & 1)) >> dropped;
  } else {  // the last bit of this sum is the format's smallest number
    const float ruler = power_of_two(24 - static_cast<int>(format.bias + format.mantissa));
    code = bit_cast<std::uint32_t>(bit_cast<float>(magnitude) + ruler) - bit_cast<std::uint32_t>(ruler);
  }
  code = code < format.largest ? code : format.largest;
  return static_cast<std::byte>(code | bits >> 31 << 7);
}

float number_of(std::byte code, const Format& format) noexcept {
  const auto bits = static_cast<std::uint32_t>(code);
  const std::uint32_t magnitude = bits & 0x7F;
  const unsigned dropped = 23 - format.mantissa;
  float number = 0;
  if (magnitude >> format.mantissa > 0) {
    number = bit_cast<float>((magnitude << dropped) + ((127 - format.bias) << 23));
  } else {
    number =
        static_cast<float>(magnitude) * power_of_two(1 - static_cast<int>(format.bias + format.mantissa));
  }
  return bit_cast<float>(bit_cast<std::uint32_t>(number) | bits >> 7 << 31);
}

// Exact: a number of few bits times a power of two.
float value_at(const std::byte* chunk, std::uint64_t i, std::uint64_t count, const Shape& shape) noexcept {
  const std::byte* codes = chunk + shape.blocks(count);
  return number_of(codes[i], shape.format) * power_of_two(static_cast<int>(chunk[i / shape.block]) - 127);
}

std::uint32_t sum_up(const Addends& x) {
  return add_up(x);
}

void encode(const Addends& x, const Shape& shape, std::byte* chunk) {
  std::byte* codes = chunk + shape.blocks(x.count);
  for (std::uint64_t at = 0; at < x.count; at += shape.block) {
    const std::uint64_t end = x.count - at < shape.block ? x.count : at + shape.block;
    const Addends block = some_of(x, at, end - at);
    const unsigned scale = scale_for(largest_magnitude(block.in, block.residual, block.count), shape);
    chunk[at / shape.block] = static_cast<std::byte>(scale);
    // Exact, or so small that it is coded as 0.
    const float inverse = power_of_two(127 - static_cast<int>(scale));
    for (std::uint64_t i = at; i < end; ++i) {
      const float sum = sum_at(x, i);
      codes[i] = code_of(sum * inverse, shape.format);
      if (x.left != nullptr) x.left[i] = sum - value_at(chunk, i, x.count, shape);
    }
  }
}

std::uint64_t find_bad_scale(const std::byte* chunk, std::uint64_t count, const Shape& shape) {
  const std::uint64_t blocks = shape.blocks(count);
  std::uint64_t block = 0;
  while (block < blocks && static_cast<unsigned>(chunk[block]) <= shape.largest_scale()) ++block;
  return block;
}

std::uint64_t find_bad_code(const std::byte* chunk, std::uint64_t count, const Shape& shape) {
  const std::byte* codes = chunk + shape.blocks(count);
  std::uint64_t i = 0;
  while (i < count && (static_cast<unsigned>(codes[i]) & 0x7F) <= shape.format.largest) ++i;
  return i;
}

// Calls store(i, value) for each value of a chunk.
template <class Store>
[[gnu::always_inline]] inline void decode(const std::byte* chunk, std::uint64_t count, const Shape& shape,
                                          Store store) noexcept {
  const std::byte* codes = chunk + shape.blocks(count);
  for (std::uint64_t at = 0; at < count; at += shape.block) {
    const std::uint64_t end = count - at < shape.block ? count : at + shape.block;
    const float unit = power_of_two(static_cast<int>(*chunk++) - 127);
    for (std::uint64_t i = at; i < end; ++i) store(i, number_of(codes[i], shape.format) * unit);
  }
}

void decode_overwrite(const std::byte* chunk, std::uint64_t count, const Shape& shape, float scale,
                      float* slot) {
  decode(chunk, count, shape, [&](std::uint64_t i, float value) { slot[i] = scale * value; });
}

void decode_accumulate(const std::byte* chunk, std::uint64_t count, const Shape& shape, float scale,
                       float* slot) {
  decode(chunk, count, shape, [&](std::uint64_t i, float value) { slot[i] += scale * value; });
}

}  // namespace

extern constexpr Kernels kKernels = {sum_up,        encode,           find_bad_scale,
                                     find_bad_code, decode_overwrite, decode_accumulate};

}  // namespace deltawire::fp8::DELTAWIRE_TARGET
