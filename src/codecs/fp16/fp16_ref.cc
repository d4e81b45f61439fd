#include <cstdint>

#include "base/bit_functions.h"
#include "base/float16.h"
#include "base/little_endian.h"
#include "codecs/fp16/fp16_ops.h"
#include "codecs/kernels/magnitude.h"

namespace deltawire::fp16::DELTAWIRE_TARGET {

namespace {

constexpr std::uint16_t kLargest = 0x7BFF;  // 65,504
constexpr std::uint16_t kInfinity = 0x7C00;

float value_at(const std::byte* payload, std::uint64_t i) noexcept {
  return bit_cast<float>(bits_of_f16(load_le<std::uint16_t>(payload + i * kValueBytes)));
}

bool all_finite(const float* in, const float* residual, std::uint64_t count) {
  return largest_magnitude(in, residual, count) < kInfinityBits;
}

void encode(const float* in, const float* residual, float* left, std::uint64_t count, std::byte* payload) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const float x = residual != nullptr ? in[i] + residual[i] : in[i];
    std::uint16_t rounded = f16_of(bit_cast<std::uint32_t>(x));
    if ((rounded & kInfinity) == kInfinity) {
      rounded = static_cast<std::uint16_t>((rounded & ~kInfinity) | kLargest);
    }
    store_le(payload + i * kValueBytes, rounded);
    if (left != nullptr) left[i] = x - value_at(payload, i);
  }
}

std::uint64_t find_refused(const std::byte* payload, std::uint64_t count) {
  std::uint64_t i = 0;
  while (i < count && (load_le<std::uint16_t>(payload + i * kValueBytes) & kInfinity) != kInfinity) ++i;
  return i;
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) slot[i] = scale * value_at(payload, i);
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) slot[i] += scale * value_at(payload, i);
}

}  // namespace

extern constexpr Kernels kKernels = {all_finite, encode, find_refused, decode_overwrite, decode_accumulate};

}  // namespace deltawire::fp16::DELTAWIRE_TARGET
