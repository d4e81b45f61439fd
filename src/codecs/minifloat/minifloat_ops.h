// The kernels of fp8 and fp4. REQUIRES of all: chunks of at least one element, and the thread in a
// FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "codecs/kernels/addends.h"
#include "codecs/target_id.h"

namespace deltawire::minifloat {

// From the highest bit a code has a sign, an exponent and a mantissa.
struct Minifloat {
  unsigned bits = 0;              // of a code: 8 or 4
  unsigned mantissa = 0;          // bits of it
  unsigned bias = 0;              // of the exponent
  unsigned largest = 0;           // code of the largest number, without sign; none above it is valid
  unsigned largest_exponent = 0;  // of that number
  // The largest significand that still gets this exponent, as float32's 23 bits behind the point: that of the
  // largest number, or more where beyond it the error is no larger than between two numbers.
  std::uint32_t reach = 0;

  // Of a scale's byte: the largest number is finite with it.
  [[gnu::always_inline]] constexpr unsigned largest_scale() const noexcept { return 254 - largest_exponent; }
};

enum class Format : std::uint8_t { kE4M3, kE5M2, kE2M1, kE3M0 };

// Those of 8 bits are OCP's OFP8.
inline constexpr Minifloat kFormats[] = {
    {.bits = 8, .mantissa = 3, .bias = 7, .largest = 0x7E, .largest_exponent = 8, .reach = 0x600000},
    {.bits = 8, .mantissa = 2, .bias = 15, .largest = 0x7B, .largest_exponent = 15, .reach = 0x600000},
    {.bits = 4, .mantissa = 1, .bias = 1, .largest = 7, .largest_exponent = 2, .reach = 0x600000},
    {.bits = 4, .mantissa = 0, .bias = 3, .largest = 7, .largest_exponent = 4, .reach = 0x400000}};

inline constexpr std::size_t kFormatCount = 4;

// Scales of all blocks, a byte each, and codes, which are finite numbers; of 4 bits two a byte, the first of
// them in the lower half. `block`: elements that share a power of two, a multiple of 32 and 1,024 at most. By
// format:
struct Kernels {
  // x.left, where that is wanted, = what the codes leave. REQUIRES: every x is finite.
  using Encode = void(const Addends& x, std::uint32_t block, std::byte* scales, std::byte* codes);
  Encode* encode[kFormatCount];

  // slot = scale * value, or slot + scale * value. Values are exact: numbers of few bits times a power of
  // two.
  using Decode = void(const std::byte* scales, const std::byte* codes, std::uint64_t count,
                      std::uint32_t block, float scale, float* slot);
  Decode* overwrite[kFormatCount];
  Decode* accumulate[kFormatCount];
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

// The loops around a target's vectors.

inline constexpr std::uint32_t kGroup = 32;  // elements that vectors code together

template <Format kFormat>
inline constexpr Minifloat kIts = kFormats[static_cast<unsigned>(kFormat)];

// 2^exponent. REQUIRES: -127 <= exponent <= 127.
[[gnu::always_inline]] inline float power_of_two(int exponent) noexcept {
  if (exponent == -127) return 0x1p-127F;  // subnormal
  return bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// The byte of the smallest scale with which the magnitude `largest`, given by its bits, is within the
// format's reach; the largest byte where none is.
template <Format kFormat>
[[gnu::always_inline]] inline unsigned scale_for(std::uint32_t largest) noexcept {
  // Carries into the exponent where the significand is beyond reach.
  const std::uint32_t field = (largest + (0x7FFFFF - kIts<kFormat>.reach)) >> 23;
  const unsigned scale = field > kIts<kFormat>.largest_exponent ? field - kIts<kFormat>.largest_exponent : 0;
  return scale < kIts<kFormat>.largest_scale() ? scale : kIts<kFormat>.largest_scale();
}

// Bytes of the codes of some elements.
template <Format kFormat>
[[gnu::always_inline]] inline std::uint64_t bytes_of(std::uint64_t elements) noexcept {
  return kIts<kFormat>.bits == 8 ? elements : (elements + 1) / 2;
}

// Returns the byte of the block's scale.
template <class Group, Format kFormat>
[[gnu::always_inline]] inline std::byte encode_block(const Addends& x, std::byte* codes) noexcept {
  constexpr std::uint32_t kLargestBlock = 1024;
  float sums[kLargestBlock];  // `left` may be `in` or `residual`
  std::uint32_t largest = 0;
  std::uint64_t i = 0;
  const auto look_at = [&](std::uint32_t of_group) { largest = of_group > largest ? of_group : largest; };
  for (; i + kGroup <= x.count; i += kGroup) look_at(Group::add(some_of(x, i, kGroup), sums + i));
  for (std::uint64_t k = i; i < x.count && k < i + kGroup; ++k) {
    sums[k] = k < x.count ? sum_at(x, k) : 0.0F;
    look_at(magnitude_bits(sums[k]));
  }
  const unsigned scale = scale_for<kFormat>(largest);
  // Exact, or so small that it is coded as 0.
  const float inverse = power_of_two(127 - static_cast<int>(scale));
  const float unit = power_of_two(static_cast<int>(scale) - 127);
  for (i = 0; i + kGroup <= x.count; i += kGroup) {
    Group::template encode<kFormat>(sums + i, inverse, unit, codes + bytes_of<kFormat>(i));
  }
  if (i < x.count) {
    std::byte apart[kGroup];
    Group::template encode<kFormat>(sums + i, inverse, unit, apart);
    std::memcpy(codes + bytes_of<kFormat>(i), apart, bytes_of<kFormat>(x.count - i));
  }
  if (x.left != nullptr) std::memcpy(x.left, sums, sizeof(float) * x.count);
  return static_cast<std::byte>(scale);
}

template <class Group, Format kFormat>
void encode_chunk(const Addends& x, std::uint32_t block, std::byte* scales, std::byte* codes) {
  for (std::uint64_t at = 0; at < x.count; at += block) {
    const std::uint64_t count = x.count - at < block ? x.count - at : block;
    *scales++ = encode_block<Group, kFormat>(some_of(x, at, count), codes + bytes_of<kFormat>(at));
  }
}

template <class Group, Format kFormat, bool kAccumulates>
void decode_chunk(const std::byte* scales, const std::byte* codes, std::uint64_t count, std::uint32_t block,
                  float scale, float* slot) {
  for (std::uint64_t at = 0; at < count; at += kGroup) {
    const float unit = power_of_two(static_cast<int>(scales[at / block]) - 127);
    const std::byte* const from = codes + bytes_of<kFormat>(at);
    const std::uint64_t rest = count - at;
    if (rest >= kGroup) {
      Group::template decode<kFormat, kAccumulates>(from, unit, scale, slot + at);
      continue;
    }
    std::byte apart[kGroup] = {};
    float values[kGroup] = {};
    std::memcpy(apart, from, bytes_of<kFormat>(rest));
    std::memcpy(values, slot + at, sizeof(float) * rest);
    Group::template decode<kFormat, kAccumulates>(apart, unit, scale, values);
    std::memcpy(slot + at, values, sizeof(float) * rest);
  }
}

// By what codes kGroup elements: Group::add(x, sums), sums = x, returns the largest magnitude;
// encode<kFormat>(sums, inverse, unit, to), sums = what is left of them; decode<kFormat, kAccumulates>(from,
// unit, scale, slot).
template <class Group, Format... kEach>
inline constexpr Kernels kKernelsBy = {{encode_chunk<Group, kEach>...},
                                       {decode_chunk<Group, kEach, false>...},
                                       {decode_chunk<Group, kEach, true>...}};

}  // namespace deltawire::minifloat
