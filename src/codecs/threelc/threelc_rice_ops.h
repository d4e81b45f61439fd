// Rice codes by words of 64 bits, for vector kernels.
#pragma once

#include <cstdint>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/kernels/rice.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc {

// Looks in a stream of bits, 64 at a time, for kLength ones in a row.
template <unsigned kLength>
class LongRuns {
 public:
  // Whether such a run ends in this word. Half of it lies in one of the two words that it may lie in: only
  // where there is as much are they looked at together.
  [[gnu::always_inline]] bool end_in(std::uint64_t ones) noexcept {
    static_assert(kLength <= 64);
    unsigned length = 1;
    std::uint64_t ends = ones;
    for (; length * 2 <= kLength / 2; length *= 2) ends &= ends << length;
    ends &= ends << (kLength / 2 - length);
    const bool half = ends != 0;
    const bool found = (half || half_before_) && end_in_both(ones);
    before_ = ones;
    half_before_ = half;
    return found;
  }

 private:
  [[gnu::always_inline]] bool end_in_both(std::uint64_t ones) const noexcept {
    std::uint64_t ends = ones;
    for (unsigned step = 1; step < kLength; ++step) ends &= ones << step | before_ >> (64 - step);
    return ends != 0;
  }

  std::uint64_t before_ = 0;
  bool half_before_ = false;
};

// Elements whose places are found at once, a multiple of 64.
inline constexpr std::uint32_t kPlacesBlock = 2048;

// Where digits stand that aren't 0: twice the position after them, and the sign. The first is the last of the
// block before.
struct Places {
  std::uint32_t at[1 + kPlacesBlock + 16];  // and what a vector may write behind the last
  std::uint32_t count;                      // without the first
};

// Of the elements [begin, end), at most a block. REQUIRES: begin is a multiple of 64, and from `end` on the
// maps' words are 0.
[[gnu::always_inline]] inline void find_few_places(const DigitMaps& maps, std::uint32_t begin,
                                                   std::uint32_t end, Places& places) noexcept {
  constexpr std::uint64_t kLast = std::uint64_t{1} << 63;  // so that there is a bit to be found
  std::uint32_t* to = places.at + 1;
  for (std::uint32_t at = begin; at < end; at += 64) {
    auto nonzero = load_le<std::uint64_t>(maps.nonzero + at / 8);
    const auto negative = load_le<std::uint64_t>(maps.negative + at / 8);
    std::uint32_t* const after = to + popcount(nonzero);
    while (to < after) {
      for (unsigned i = 0; i < 4; ++i) {  // at most three too many: the next ones overwrite them
        const std::uint32_t bit = countr_zero(nonzero | kLast);
        *to++ = (at + bit + 1) * 2 + static_cast<std::uint32_t>(negative >> bit & 1);
        nonzero &= nonzero - 1;
      }
    }
    to = after;
  }
  places.count = static_cast<std::uint32_t>(to - (places.at + 1));
}

namespace DELTAWIRE_TARGET {

// The same, faster where they are many.
void find_places(const DigitMaps& maps, std::uint32_t begin, std::uint32_t end, Places& places);

}  // namespace DELTAWIRE_TARGET

}  // namespace deltawire::threelc
