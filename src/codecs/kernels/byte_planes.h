// The bytes of float32 values for a general compressor: value by value, or in planes, bytes of equal
// significance together, where equal bytes are near each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "codecs/kernels/addends.h"

namespace deltawire {

inline constexpr unsigned kPlanes = 4;

// Kernels of byte planes. With `planes`, byte p of value i, from the lowest on, is byte p * count + i; else 4
// * i + p. REQUIRES of all: 4 * count bytes, and the thread in a FloatEnvironment.
struct PlaneKernels {
  // bytes = those of in + residual, or of in bit for bit where there is no residual; left = 0 where that is
  // wanted.
  void (*split)(const Addends& x, bool planes, std::byte* bytes);

  // slot = scale * value; with scale 1 the value's bits as they are.
  void (*join_overwrite)(const std::byte* bytes, std::uint64_t count, bool planes, float scale, float* slot);

  // slot = slot + scale * value, two roundings.
  void (*join_accumulate)(const std::byte* bytes, std::uint64_t count, bool planes, float scale, float* slot);
};

[[gnu::always_inline]] inline std::uint64_t place_of(std::uint64_t i, unsigned plane, std::uint64_t count,
                                                     bool planes) noexcept {
  return planes ? plane * count + i : kPlanes * i + plane;
}

[[gnu::always_inline]] inline std::uint32_t joined_bits(const std::byte* bytes, std::uint64_t i,
                                                        std::uint64_t count, bool planes) noexcept {
  std::uint32_t bits = 0;
  for (unsigned p = 0; p < kPlanes; ++p) {
    bits |= static_cast<std::uint32_t>(bytes[place_of(i, p, count, planes)]) << 8 * p;
  }
  return bits;
}

[[gnu::always_inline]] inline void split_planes(const Addends& x, bool planes, std::byte* bytes) noexcept {
  for (std::uint64_t i = 0; i < x.count; ++i) {
    std::uint32_t bits = 0;
    if (x.residual != nullptr) {
      bits = bit_cast<std::uint32_t>(sum_at(x, i));
    } else {
      // As an integer: a float on its way through a register may lose a NaN's bits.
      std::memcpy(&bits, x.in + i, sizeof bits);
    }
    for (unsigned p = 0; p < kPlanes; ++p) {
      bytes[place_of(i, p, x.count, planes)] = static_cast<std::byte>(bits >> 8 * p & 0xFF);
    }
    if (x.left != nullptr) x.left[i] = 0.0F;
  }
}

[[gnu::always_inline]] inline void join_planes(const std::byte* bytes, std::uint64_t count, bool planes,
                                               float scale, float* slot) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = joined_bits(bytes, i, count, planes);
    if (scale == 1.0F) {
      std::memcpy(slot + i, &bits, sizeof bits);
    } else {
      slot[i] = scale * bit_cast<float>(bits);
    }
  }
}

[[gnu::always_inline]] inline void add_planes(const std::byte* bytes, std::uint64_t count, bool planes,
                                              float scale, float* slot) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    slot[i] += scale * bit_cast<float>(joined_bits(bytes, i, count, planes));
  }
}

}  // namespace deltawire
