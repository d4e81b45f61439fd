// Rice codes by words of 64 bits, for vector kernels.
#pragma once

#include <cstdint>

#include "codecs/kernels/rice.h"

namespace deltawire::threelc {

// Looks in a stream of bits, 64 at a time, for kMaxUnary ones in a row.
class LongRuns {
 public:
  // Whether such a run ends in this word.
  [[gnu::always_inline]] bool end_in(std::uint64_t ones) noexcept {
    static_assert(kMaxUnary == 24);
    ones = continued<1>(ones, before_[0]);
    ones = continued<2>(ones, before_[1]);
    ones = continued<4>(ones, before_[2]);
    ones = continued<8>(ones, before_[3]);
    return continued<8>(ones, before_[4]) != 0;
  }

 private:
  // Where runs end that are longer by kStep than those of which `ends` are the last bits.
  template <unsigned kStep>
  [[gnu::always_inline]] static std::uint64_t continued(std::uint64_t ends, std::uint64_t& before) noexcept {
    const std::uint64_t shifted = ends << kStep | before >> (64 - kStep);
    before = ends;
    return ends & shifted;
  }

  std::uint64_t before_[5] = {};  // the word before: where runs of 1, 2, 4, 8 and 16 end
};

}  // namespace deltawire::threelc
