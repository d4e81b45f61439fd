// The kernels of randomk: what a faster implementation replaces. Each is a pure function of its arguments,
// and every implementation must give the reference's bytes, residuals and values exactly.
//
// REQUIRES of all: the calling thread in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/kernels/addends.h"
#include "codecs/kernels/strata.h"
#include "codecs/target_id.h"

namespace deltawire::randomk {

inline constexpr std::uint32_t kValueBytes = 4;

struct Target {
  float* slot = nullptr;
  float scale = 1;
  bool accumulate = false;
};

// Some of the values in a row.
struct Run {
  std::uint64_t first = 0;
  std::uint64_t count = 0;  // draw.kept - first at most
};

struct Kernels {
  // left = x where that is wanted. Returns whether every x is finite.
  bool (*sum_up)(const Addends& x);

  // Writes the drawn values of x as float32, each times its stratum's elements if `unbiased`. False if one of
  // them is not finite.
  bool (*write)(const Addends& x, const Draw& draw, bool unbiased, std::byte* payload);

  // left -= what write() wrote of it.
  void (*take_sent)(float* left, const Draw& draw, const std::byte* payload);

  // The index of the first of `kept` values that is not finite, or `kept`.
  std::uint64_t (*find_not_finite)(const std::byte* payload, std::uint64_t kept);

  // Hands out some values, float32 as write() writes them: `values` is the first of the run. What isn't drawn
  // keeps its bits, and a value of 0 is written nowhere.
  void (*read)(const std::byte* values, const Draw& draw, const Run& run, const Target& target);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::randomk
