#include <cstdint>

#include "codecs/baselines/twobit/twobit_ops.h"
#include "codecs/kernels/magnitude.h"

namespace deltawire::twobit::DELTAWIRE_TARGET {

namespace {

constexpr unsigned kZero = 0;
constexpr unsigned kNone = 1;  // stands for nothing
constexpr unsigned kMinus = 2;
constexpr unsigned kPlus = 3;

// How far up in its byte the code of element i lies: the first is the highest.
unsigned shift_of(std::uint64_t i) noexcept {
  return 6 - 2 * static_cast<unsigned>(i % kPerByte);
}

unsigned code_at(const std::byte* payload, std::uint64_t i) noexcept {
  return static_cast<unsigned>(payload[i / kPerByte]) >> shift_of(i) & 3;
}

bool all_finite(const float* in, const float* residual, std::uint64_t count) {
  return largest_magnitude(in, residual, count) < kInfinityBits;
}

void encode(const float* in, const float* residual, float* left, std::uint64_t count, float threshold,
            std::byte* payload) {
  unsigned byte = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const float x = residual != nullptr ? in[i] + residual[i] : in[i];
    unsigned code = kZero;
    float rest = x;
    if (x >= threshold) {
      code = kPlus;
      rest = x - threshold;
    } else if (x <= -threshold) {
      code = kMinus;
      rest = x + threshold;
    }
    if (left != nullptr) left[i] = rest;
    byte |= code << shift_of(i);
    if (i % kPerByte == kPerByte - 1 || i == count - 1) {
      payload[i / kPerByte] = static_cast<std::byte>(byte);
      byte = 0;
    }
  }
}

std::uint64_t find_refused(const std::byte* payload, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (code_at(payload, i) == kNone) return i;
  }
  for (std::uint64_t i = count; i % kPerByte != 0; ++i) {
    if (code_at(payload, i) != kZero) return i;
  }
  return (count / kPerByte + (count % kPerByte != 0 ? 1 : 0)) * kPerByte;
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, float threshold, float scale,
                      float* slot) {
  const float values[4] = {scale * 0.0F, 0.0F, scale * -threshold, scale * threshold};
  for (std::uint64_t i = 0; i < count; ++i) slot[i] = values[code_at(payload, i)];
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, float threshold, float scale,
                       float* slot) {
  const float values[4] = {0.0F, 0.0F, scale * -threshold, scale * threshold};
  for (std::uint64_t i = 0; i < count; ++i) {
    const unsigned code = code_at(payload, i);
    if (code != kZero) slot[i] += values[code];
  }
}

}  // namespace

extern constexpr Kernels kKernels = {all_finite, encode, find_refused, decode_overwrite, decode_accumulate};

}  // namespace deltawire::twobit::DELTAWIRE_TARGET
