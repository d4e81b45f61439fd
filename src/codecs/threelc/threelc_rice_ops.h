// Rice codes by words of 64 bits, for vector kernels.
#pragma once

#include <cstdint>

#include "codecs/kernels/rice.h"

namespace deltawire::threelc {

// Looks in a stream of bits, 64 at a time, for kMaxUnary ones in a row.
class LongRuns {
 public:
  // Whether such a run ends in this word. Half of it lies in one of the two words that it may lie in: only
  // where there is as much are they looked at together.
  [[gnu::always_inline]] bool end_in(std::uint64_t ones) noexcept {
    static_assert(kMaxUnary == 24);
    std::uint64_t ends = ones & ones << 1;
    ends &= ends << 2;
    ends &= ends << 4;
    ends &= ends << 4;
    const bool half = ends != 0;
    const bool found = (half || half_before_) && end_in_both(ones);
    before_ = ones;
    half_before_ = half;
    return found;
  }

 private:
  [[gnu::always_inline]] bool end_in_both(std::uint64_t ones) const noexcept {
    std::uint64_t ends = ones;
    for (unsigned step = 1; step < kMaxUnary; ++step) ends &= ones << step | before_ >> (64 - step);
    return ends != 0;
  }

  std::uint64_t before_ = 0;
  bool half_before_ = false;
};

}  // namespace deltawire::threelc
