// The random numbers of codecs that round by chance: 32 bits for each element of a part, from the caller's
// stream, so that any element can be drawn alone.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace deltawire {

struct Draws {
  CounterRng random;
  std::uint64_t first = 0;  // the element of the part that is element 0 here
};

// Those of element i: the lower half of a number of the stream for even elements, the upper for odd ones.
[[gnu::always_inline]] inline std::uint32_t draw_at(const Draws& draws, std::uint64_t i) noexcept {
  const std::uint64_t at = draws.first + i;
  return static_cast<std::uint32_t>(draws.random.at(at / 2) >> (at % 2 * 32));
}

// The same as a number in (0, 1), an odd multiple of 2^-33: it is below p with a chance that differs from p
// by at most 2^-33, and surely where p is 1, never where p is 0.
[[gnu::always_inline]] inline double uniform_at(const Draws& draws, std::uint64_t i) noexcept {
  return (static_cast<double>(draw_at(draws, i)) + 0.5) * 0x1p-32;
}

// Which elements are drawn: the part is cut into `kept` strata, as equal as whole numbers allow, and in each
// one place is drawn. Places grow, and any of them can be found alone.
struct Draw {
  CounterRng random;
  std::uint64_t count = 0;  // below 2^32
  std::uint64_t kept = 0;   // 1 to count
};

struct Drawn {
  std::uint64_t at = 0;
  std::uint64_t stratum = 0;  // elements among which it was drawn
};

[[gnu::always_inline]] inline Drawn place_of(const Draw& draw, std::uint64_t i) noexcept {
  const std::uint64_t begin = i * draw.count / draw.kept;
  const std::uint64_t stratum = (i + 1) * draw.count / draw.kept - begin;
  return {begin + ((draw.random.at(i) >> 32) * stratum >> 32), stratum};
}

}  // namespace deltawire
