// Steps whose times can be computed by hand.
#pragma once

#include <string>
#include <utility>

#include "deltawire/planner.h"

namespace deltawire::planner {

// A link of one megabyte per second, and messages without any cost but their bytes.
inline Site bare_site(int ranks) {
  Site site;
  site.ranks = ranks;
  site.link = {1e6, 1e6, 0};
  site.machine = {.cores = 64, .coding_threads = 1, .message_seconds = 0, .byte_seconds = 0};
  return site;
}

// One tensor; it is cut evenly among the ranks if it has 320 x ranks x n elements.
inline PlanBucket bucket_of(std::uint64_t elements, double ready = 0) {
  return {{{"weight", elements}}, ready};
}

inline Workload step_of(std::vector<PlanBucket> buckets, double compute_seconds = 0) {
  return {std::move(buckets), compute_seconds};
}

// Per value: a microsecond to encode it, two to decode it.
inline CodecFigures slow_codec(Pattern pattern, double bits = 8) {
  return {"slow", pattern, Tier::kLossy, bits, {0, 1e-6}, {0, 2e-6}};
}

// Coding takes no time.
inline CodecFigures free_codec(Pattern pattern, double bits = 32) {
  return {"free", pattern, Tier::kLossless, bits, {}, {}};
}

}  // namespace deltawire::planner
