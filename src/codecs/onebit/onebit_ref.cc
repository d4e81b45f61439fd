#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/kernels/lanes.h"
#include "codecs/onebit/onebit_ops.h"

namespace deltawire::onebit::DELTAWIRE_TARGET {

namespace {

// An element adds 0 to the other side, which changes nothing.
Sides split(const Addends& x, std::byte* payload) {
  Sides sides{};
  for (std::uint64_t block = 0; block < x.count; block += kSumBlock) {
    const std::uint64_t rest = x.count - block;
    const std::uint64_t end = block + (rest < kSumBlock ? rest : kSumBlock);
    double high[kSumLanes] = {};
    double low[kSumLanes] = {};
    for (std::uint64_t i = block; i < end; ++i) {
      const float sum = sum_at(x, i);
      const bool negative = sum < 0;
      const std::uint32_t magnitude = magnitude_bits(sum);
      sides.largest = magnitude > sides.largest ? magnitude : sides.largest;
      sides.negatives += negative ? 1 : 0;
      high[i % kSumLanes] += negative ? 0.0F : sum;
      low[i % kSumLanes] += negative ? -sum : 0.0F;
      put_sign_bit(payload, i, negative);
      if (x.left != nullptr) x.left[i] = sum;
    }
    sides.high += folded(high);
    sides.low += folded(low);
  }
  return sides;
}

void take_means(const Addends& x, Means means) {
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    x.left[i] = sum - (sum < 0 ? means.low : means.high);
  }
}

std::uint64_t find_set(const std::byte* payload, std::uint64_t bytes) {
  return find_set_byte(payload, bytes);
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, Means values, float* slot) {
  put_sides(payload, count, values, slot);
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, Means values, float* slot) {
  add_sides(payload, count, values, slot);
}

}  // namespace

extern constexpr Kernels kKernels = {
    split,         take_means,        find_set,          decode_overwrite, decode_accumulate,
    split_columns, take_column_means, find_without_mean, decode_columns};

}  // namespace deltawire::onebit::DELTAWIRE_TARGET
