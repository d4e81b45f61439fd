// Elapsed wall-clock time.
#pragma once

#include "deltawire/transport.h"

namespace deltawire::linear {

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace deltawire::linear
