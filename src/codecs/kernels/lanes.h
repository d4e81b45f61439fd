// Sums in one order, whatever the width of a machine's vectors: element i of a block goes to lane i mod
// kLanes, and then lanes are folded in halves. The sums of blocks are added in order.
#pragma once

#include <cstdint>

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

}  // namespace deltawire
