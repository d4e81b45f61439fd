// The kernels of randomk: what a faster implementation replaces. Each is a pure function of its arguments,
// and every implementation must give the reference's bytes, residuals and values exactly.
//
// REQUIRES of all: the calling thread in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/random.h"
#include "codecs/kernels/addends.h"
#include "codecs/target_id.h"

namespace deltawire::randomk {

inline constexpr std::uint32_t kValueBytes = 4;

// Which elements are sent: the part is cut into `kept` strata, as equal as whole numbers allow, and in each
// one place is drawn. Value i of the payload is that of stratum i, so that places grow and any of them can be
// found alone.
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

struct Target {
  float* slot = nullptr;
  float scale = 1;
  bool accumulate = false;
};

struct Kernels {
  // left = x where that is wanted. Returns whether every x is finite.
  bool (*sum_up)(const Addends& x);

  // Writes the drawn values of x, each times its stratum's elements if `unbiased`. False if one of them is
  // not finite.
  bool (*write)(const Addends& x, const Draw& draw, bool unbiased, std::byte* payload);

  // left -= what write() wrote of it.
  void (*take_sent)(float* left, const Draw& draw, const std::byte* payload);

  // The index of the first of `kept` values that is not finite, or `kept`.
  std::uint64_t (*find_not_finite)(const std::byte* payload, std::uint64_t kept);

  // Hands out the values; overwriting, all other elements become 0. A value of 0 is added to nothing.
  void (*read)(const std::byte* payload, const Draw& draw, const Target& target);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::randomk
