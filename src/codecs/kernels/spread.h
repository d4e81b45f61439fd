// What is known of the magnitudes of a part or a stretch of it: the largest, and the sum of their squares.
#pragma once

#include <cstdint>

#include "codecs/kernels/addends.h"
#include "codecs/kernels/lanes.h"

namespace deltawire {

struct Spread {
  std::uint32_t largest = 0;  // bits of the largest |x|; at least kInfinityBits if any isn't finite
  double squares = 0;         // their sum, by blocks and lanes (lanes.h); float64 holds each square exactly
};

// left = x where that is wanted.
[[gnu::always_inline]] inline Spread spread_of(const Addends& x) noexcept {
  Spread spread{};
  for (std::uint64_t block = 0; block < x.count; block += kSumBlock) {
    const std::uint64_t rest = x.count - block;
    const std::uint64_t end = block + (rest < kSumBlock ? rest : kSumBlock);
    double lanes[kSumLanes] = {};
    for (std::uint64_t i = block; i < end; ++i) {
      const float sum = sum_at(x, i);
      const std::uint32_t magnitude = magnitude_bits(sum);
      spread.largest = magnitude > spread.largest ? magnitude : spread.largest;
      lanes[i % kSumLanes] += static_cast<double>(sum) * static_cast<double>(sum);
      if (x.left != nullptr) x.left[i] = sum;
    }
    spread.squares += folded(lanes);
  }
  return spread;
}

}  // namespace deltawire
