#include <bit>
#include <cstdint>
#include <cstring>

#include "base/little_endian.h"
#include "codecs/bf16/bf16_ops.h"

namespace deltawire::bf16 {

namespace {

constexpr std::uint32_t kMagnitude = 0x7FFFFFFF;
constexpr std::uint32_t kInfinity = 0x7F800000;
constexpr std::uint32_t kQuietNan = 0x7FC0;

// Round to nearest even by integers: adding 0x7FFF, and 1 more where the kept part is odd, carries exactly
// when the nearest (or, at a tie, the even) neighbour is the upper one; past the largest finite value the
// carry makes Inf, as IEEE 754 says. A NaN could carry into Inf, so it is answered first.
std::uint16_t round_to_bf16(std::uint32_t bits) noexcept {
  if ((bits & kMagnitude) > kInfinity) return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | kQuietNan);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

std::uint32_t widened_bits(std::uint16_t value) noexcept {
  return std::uint32_t{value} << 16;
}

std::uint16_t stored(const std::byte* payload, std::uint64_t i) noexcept {
  return load_le<std::uint16_t>(payload + i * kValueBytes);
}

void encode(const float* in, float* residual, std::uint64_t count, std::byte* payload) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const float x = residual != nullptr ? in[i] + residual[i] : in[i];
    const std::uint16_t rounded = round_to_bf16(std::bit_cast<std::uint32_t>(x));
    store_le(payload + i * kValueBytes, rounded);
    if (residual == nullptr) continue;
    const std::uint32_t bits = widened_bits(rounded);
    // What became Inf or NaN can't be corrected later: a residual of NaN would poison every step after it.
    const bool finite = (bits & kMagnitude) < kInfinity;
    residual[i] = finite ? x - std::bit_cast<float>(bits) : 0.0F;
  }
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  if (scale == 1.0F) {
    // As integers: a float on its way through a register may lose a NaN's bits.
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint32_t bits = widened_bits(stored(payload, i));
      std::memcpy(slot + i, &bits, sizeof bits);
    }
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    slot[i] = scale * std::bit_cast<float>(widened_bits(stored(payload, i)));
  }
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) {
    slot[i] += scale * std::bit_cast<float>(widened_bits(stored(payload, i)));
  }
}

constexpr Kernels kReference = {encode, decode_overwrite, decode_accumulate};

}  // namespace

const Kernels& reference_kernels() noexcept {
  return kReference;
}

}  // namespace deltawire::bf16
