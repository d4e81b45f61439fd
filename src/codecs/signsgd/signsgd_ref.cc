#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/kernels/lanes.h"
#include "codecs/signsgd/signsgd_ops.h"

namespace deltawire::signsgd::DELTAWIRE_TARGET {

namespace {

Magnitudes split(const Addends& x, std::byte* payload) {
  Magnitudes all{};
  for (std::uint64_t block = 0; block < x.count; block += kSumBlock) {
    const std::uint64_t rest = x.count - block;
    const std::uint64_t end = block + (rest < kSumBlock ? rest : kSumBlock);
    double lanes[kSumLanes] = {};
    for (std::uint64_t i = block; i < end; ++i) {
      const float sum = sum_at(x, i);
      const std::uint32_t magnitude = magnitude_bits(sum);
      all.largest = magnitude > all.largest ? magnitude : all.largest;
      lanes[i % kSumLanes] += bit_cast<float>(magnitude);
      put_sign_bit(payload, i, sum < 0);
      if (x.left != nullptr) x.left[i] = sum;
    }
    all.sum += folded(lanes);
  }
  return all;
}

void take_scale(const Addends& x, float scale) {
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    x.left[i] = sum - (sum < 0 ? -scale : scale);
  }
}

std::uint64_t find_set(const std::byte* payload, std::uint64_t bytes) {
  return find_set_byte(payload, bytes);
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, float value, float* slot) {
  put_sides(payload, count, {value, -value}, slot);
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, float value, float* slot) {
  add_sides(payload, count, {value, -value}, slot);
}

}  // namespace

extern constexpr Kernels kKernels = {split, take_scale, find_set, decode_overwrite, decode_accumulate};

}  // namespace deltawire::signsgd::DELTAWIRE_TARGET
