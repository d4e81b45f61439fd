#include <cstdint>

#include "codecs/kernels/lanes.h"
#include "codecs/kernels/magnitude.h"
#include "codecs/onebit/onebit_ops.h"

namespace deltawire::onebit::DELTAWIRE_TARGET {

namespace {

float sum_at(const float* in, const float* residual, std::uint64_t i) noexcept {
  return residual != nullptr ? in[i] + residual[i] : in[i];
}

// An element adds 0 to the other side, which changes nothing.
Sides measure(const float* in, const float* residual, std::uint64_t count) {
  Sides sides{};
  for (std::uint64_t block = 0; block < count; block += kSumBlock) {
    const std::uint64_t left = count - block;
    const std::uint64_t end = block + (left < kSumBlock ? left : kSumBlock);
    double high[kSumLanes] = {};
    double low[kSumLanes] = {};
    for (std::uint64_t i = block; i < end; ++i) {
      const float x = sum_at(in, residual, i);
      const std::uint32_t magnitude = magnitude_bits(x);
      sides.largest = magnitude > sides.largest ? magnitude : sides.largest;
      sides.negatives += x < 0 ? 1 : 0;
      high[i % kSumLanes] += x < 0 ? 0.0F : x;
      low[i % kSumLanes] += x < 0 ? -x : 0.0F;
    }
    sides.high += folded(high);
    sides.low += folded(low);
  }
  return sides;
}

void encode(const float* in, float* residual, std::uint64_t count, Means means, std::byte* payload) {
  for (std::uint64_t at = 0; at < count; at += 8) {
    const std::uint64_t end = count - at < 8 ? count : at + 8;
    unsigned bits = 0;
    for (std::uint64_t i = at; i < end; ++i) {
      const float x = sum_at(in, residual, i);
      bits |= (x < 0 ? 1U : 0U) << (i - at);
      if (residual != nullptr) residual[i] = x - (x < 0 ? means.low : means.high);
    }
    payload[at / 8] = static_cast<std::byte>(bits);
  }
}

std::uint64_t find_set(const std::byte* payload, std::uint64_t bytes) {
  std::uint64_t i = 0;
  while (i < bytes && payload[i] == std::byte{0}) ++i;
  return i;
}

float value_at(const std::byte* payload, std::uint64_t i, Means values) noexcept {
  return (static_cast<unsigned>(payload[i / 8]) >> (i % 8) & 1) != 0 ? values.low : values.high;
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, Means values, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) slot[i] = value_at(payload, i, values);
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, Means values, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) slot[i] += value_at(payload, i, values);
}

}  // namespace

extern constexpr Kernels kKernels = {measure, encode, find_set, decode_overwrite, decode_accumulate};

}  // namespace deltawire::onebit::DELTAWIRE_TARGET
