#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/float16.h"
#include "base/little_endian.h"
#include "codecs/bf16/bf16_ops.h"

namespace deltawire::bf16::DELTAWIRE_TARGET {

namespace {

std::uint16_t stored(const std::byte* payload, std::uint64_t i) noexcept {
  return load_le<std::uint16_t>(payload + i * kValueBytes);
}

void encode(const float* in, const float* residual, float* left, std::uint64_t count, std::byte* payload) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const float x = residual != nullptr ? in[i] + residual[i] : in[i];
    const std::uint16_t rounded = bf16_of(bit_cast<std::uint32_t>(x));
    store_le(payload + i * kValueBytes, rounded);
    if (residual == nullptr) continue;
    const std::uint32_t bits = bits_of_bf16(rounded);
    // What became Inf or NaN can't be corrected later: a residual of NaN would poison every step after it.
    const bool finite = (bits & kMagnitudeMask) < kInfinityBits;
    left[i] = finite ? x - bit_cast<float>(bits) : 0.0F;
  }
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  if (scale == 1.0F) {
    // As integers: a float on its way through a register may lose a NaN's bits.
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint32_t bits = bits_of_bf16(stored(payload, i));
      std::memcpy(slot + i, &bits, sizeof bits);
    }
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    slot[i] = scale * bit_cast<float>(bits_of_bf16(stored(payload, i)));
  }
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) {
    slot[i] += scale * bit_cast<float>(bits_of_bf16(stored(payload, i)));
  }
}

}  // namespace

extern constexpr Kernels kKernels = {nullptr, encode, nullptr, decode_overwrite, decode_accumulate};

}  // namespace deltawire::bf16::DELTAWIRE_TARGET
