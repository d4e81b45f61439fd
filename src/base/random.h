// Counter-based random numbers: value i of a stream is a pure function of (seed, i), so any thread, device
// or restart can draw any of them. SplitMix64's output function over a Weyl sequence (Steele, Lea, Flood:
// "Fast splittable pseudorandom number generators", OOPSLA 2014). Not for secrets.
#pragma once

#include <cstdint>

namespace deltawire {

class CounterRng {
 public:
  [[gnu::always_inline]] explicit constexpr CounterRng(std::uint64_t seed, std::uint64_t stream = 0) noexcept
      : key_(mix(seed + kGolden * (stream + 1))) {}

  // Value `counter` of the stream.
  [[gnu::always_inline]] constexpr std::uint64_t at(std::uint64_t counter) const noexcept {
    return mix(key_ + kGolden * (counter + 1));
  }

  // The same in [0, 1), a multiple of 2^-53.
  [[gnu::always_inline]] constexpr double uniform_at(std::uint64_t counter) const noexcept {
    return static_cast<double>(at(counter) >> 11) * 0x1p-53;
  }

  [[gnu::always_inline]] constexpr std::uint64_t next() noexcept { return at(counter_++); }
  [[gnu::always_inline]] constexpr double next_uniform() noexcept { return uniform_at(counter_++); }

 private:
  static constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;

  [[gnu::always_inline]] static constexpr std::uint64_t mix(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace deltawire
