#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "codecs/planes/planes_ops.h"

namespace deltawire::planes::DELTAWIRE_TARGET {

namespace {

constexpr unsigned kPlanes = 4;

std::uint64_t place_of(std::uint64_t i, unsigned plane, std::uint64_t count, bool planes) noexcept {
  return planes ? plane * count + i : kPlanes * i + plane;
}

std::uint32_t joined_bits(const std::byte* bytes, std::uint64_t i, std::uint64_t count,
                          bool planes) noexcept {
  std::uint32_t bits = 0;
  for (unsigned p = 0; p < kPlanes; ++p) {
    bits |= static_cast<std::uint32_t>(bytes[place_of(i, p, count, planes)]) << 8 * p;
  }
  return bits;
}

void split(const Addends& x, bool planes, std::byte* bytes) {
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

void join_overwrite(const std::byte* bytes, std::uint64_t count, bool planes, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = joined_bits(bytes, i, count, planes);
    if (scale == 1.0F) {
      std::memcpy(slot + i, &bits, sizeof bits);
    } else {
      slot[i] = scale * bit_cast<float>(bits);
    }
  }
}

void join_accumulate(const std::byte* bytes, std::uint64_t count, bool planes, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) {
    slot[i] += scale * bit_cast<float>(joined_bits(bytes, i, count, planes));
  }
}

}  // namespace

extern constexpr Kernels kKernels = {split, join_overwrite, join_accumulate};

}  // namespace deltawire::planes::DELTAWIRE_TARGET
