// Threads that each have something of their own, a lane, and take the next piece of work while there is one.
#pragma once

#include <atomic>
#include <cstddef>

#include "deltawire/workers.h"

namespace deltawire {

// Calls work(lane, index) for the indices below `count`, each once and in order as they are taken; no two
// calls of a lane overlap. Once a call has returned false no further index is taken, and those that were
// taken are done: all before the first that failed. Returns whether all returned true. As Workers::share,
// without workers (null) on this thread alone. REQUIRES: work throws nothing.
template <class Work>
bool share_by_lanes(Workers* workers, std::size_t lanes, std::size_t count, const Work& work) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> has_failed = false;
  Workers::share(workers, lanes, [&](std::size_t lane) {
    while (!has_failed) {
      // What is taken is done: the flag is not looked at in between.
      const std::size_t index = next++;
      if (index >= count) break;
      if (!work(lane, index)) has_failed = true;
    }
  });
  return !has_failed;
}

}  // namespace deltawire
