// Sums in one order, whatever the width of a machine's vectors: element i of a block goes to lane i mod
// kLanes, and then lanes are folded in halves. The sums of blocks are added in order.
#pragma once

#include <cstdint>

#include "codecs/kernels/addends.h"

namespace deltawire {

// What most sums of a part's elements take.
inline constexpr std::uint64_t kSumBlock = 65536;
inline constexpr std::uint32_t kSumLanes = 16;

// Leaves the sum of all lanes in the first. REQUIRES: kLanes is a power of two.
template <std::uint32_t kLanes>
[[gnu::always_inline]] inline double folded(double (&lanes)[kLanes]) noexcept {
  for (std::uint32_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::uint32_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// What is known of the values of a part or a stretch of it: the largest magnitude, and a sum over all.
struct Spread {
  std::uint32_t largest = 0;  // bits of the largest |x|; at least kInfinityBits if any isn't finite
  double sum = 0;             // by blocks and lanes
};

// The sum of term(i, x) for each element, in order. left = x where that is wanted.
[[gnu::always_inline]] inline Spread spread_by(const Addends& x, const auto& term) noexcept {
  Spread spread{};
  for (std::uint64_t block = 0; block < x.count; block += kSumBlock) {
    const std::uint64_t rest = x.count - block;
    const std::uint64_t end = block + (rest < kSumBlock ? rest : kSumBlock);
    double lanes[kSumLanes] = {};
    for (std::uint64_t i = block; i < end; ++i) {
      const float sum = sum_at(x, i);
      const std::uint32_t magnitude = magnitude_bits(sum);
      spread.largest = magnitude > spread.largest ? magnitude : spread.largest;
      lanes[i % kSumLanes] += term(i, sum);
      if (x.left != nullptr) x.left[i] = sum;
    }
    spread.sum += folded(lanes);
  }
  return spread;
}

// The sum of squares; float64 holds each of them exactly.
[[gnu::always_inline]] inline Spread spread_of(const Addends& x) noexcept {
  return spread_by(
      x, [](std::uint64_t, float sum) { return static_cast<double>(sum) * static_cast<double>(sum); });
}

}  // namespace deltawire
