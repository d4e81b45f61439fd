// The random decisions of a simulation.
#pragma once

#include <cassert>
#include <chrono>
#include <cmath>
#include <cstdint>

#include "base/random.h"

namespace deltawire::simulation {

class Dice {
 public:
  // Different streams of one seed are independent.
  Dice(std::uint64_t seed, std::uint64_t stream) noexcept : rng_(seed, stream) {}

  // 0 ... bound - 1.
  std::uint64_t below(std::uint64_t bound) noexcept {
    assert(bound > 0);
    return rng_.next() % bound;
  }
  // first ... last.
  int between(int first, int last) noexcept {
    assert(first <= last);
    return first + static_cast<int>(below(static_cast<std::uint64_t>(last - first + 1)));
  }
  // 0 ... most: of every part of the range alike.
  std::chrono::nanoseconds up_to(std::chrono::nanoseconds most) noexcept {
    return std::chrono::nanoseconds(below(static_cast<std::uint64_t>(most.count()) + 1));
  }
  // True once in `times`.
  bool one_in(std::uint64_t times) noexcept { return below(times) == 0; }
  // Of every order of magnitude alike.
  std::chrono::nanoseconds time_between(std::chrono::nanoseconds least,
                                        std::chrono::nanoseconds most) noexcept {
    const double low = std::log(static_cast<double>(least.count()));
    const double high = std::log(static_cast<double>(most.count()));
    return std::chrono::nanoseconds(
        static_cast<std::int64_t>(std::exp(low + (high - low) * rng_.next_uniform())));
  }
  const auto& pick(const auto& list) noexcept { return list[below(std::size(list))]; }

 private:
  CounterRng rng_;
};

// How many streams carry the messages of a pair of ranks: several in a quarter of the seeds.
inline int streams_of(std::uint64_t seed) noexcept {
  Dice dice(seed, 40);
  return dice.one_in(4) ? dice.between(2, 4) : 1;
}

}  // namespace deltawire::simulation
