// Threads that each have their own resources, a lane, and take the next piece of work while there is one.
#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "deltawire/workers.h"

namespace deltawire {

// Elements of a message below which waking a thread costs as much as it spares.
inline constexpr std::uint64_t kWorthSharing = 131072;

inline Workers* worth_waking(Workers* workers, std::uint64_t elements) noexcept {
  return elements < kWorthSharing ? nullptr : workers;
}

// Calls work(lane, index) once for each index below `count`; lanes take indices in increasing order, and no
// two calls of a lane overlap. Once a call has returned false, no further index is taken, but taken ones are
// completed, so all indices before the first failure are done. Returns whether all calls returned true.
// Without workers (null), all run on this thread. REQUIRES: work throws nothing.
template <class Work>
bool share_by_lanes(Workers* workers, std::size_t lanes, std::size_t count, const Work& work) {
  assert(lanes > 0 || count == 0);
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> has_failed = false;
  Workers::share(workers, lanes, [&](std::size_t lane) {
    while (!has_failed) {
      // A taken index must be completed: the flag is not checked in between.
      const std::size_t index = next++;
      if (index >= count) break;
      if (!work(lane, index)) has_failed = true;
    }
  });
  return !has_failed;
}

}  // namespace deltawire
