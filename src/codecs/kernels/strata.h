// One place in each of some equal stretches, drawn by chance.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace deltawire {

// Which elements are drawn: the part is cut into `kept` strata, as equal as whole numbers allow, and in each
// one place is drawn. Places grow, and any of them can be found alone.
struct Draw {
  CounterRng random;
  std::uint64_t count = 0;  // below 2^32
  std::uint64_t kept = 0;   // 1 to count
};

struct Place {
  std::uint64_t at = 0;
  std::uint64_t stratum = 0;  // elements among which it was drawn
};

[[gnu::always_inline]] inline Place place_of(const Draw& draw, std::uint64_t i) noexcept {
  const std::uint64_t begin = i * draw.count / draw.kept;
  const std::uint64_t stratum = (i + 1) * draw.count / draw.kept - begin;
  return {begin + ((draw.random.at(i) >> 32) * stratum >> 32), stratum};
}

}  // namespace deltawire
