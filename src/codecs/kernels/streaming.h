// When a kernel's output is written past the caches.
#pragma once

#include <cstdint>

#include "base/bit_functions.h"

namespace deltawire {

// Output of so many bytes won't be read again before it has left the caches, so vector kernels store it with
// non-temporal stores: these don't first read the line that they replace. Below it, or where output is added
// to what is there, they would only make its next reader wait for memory.
inline constexpr std::uint64_t kStreamedBytes = std::uint64_t{16} << 20;

// How many floats lie before the next multiple of `bytes` (a power of two): such stores need one.
[[gnu::always_inline]] inline std::uint64_t floats_before_boundary(const float* at,
                                                                   std::uint64_t bytes) noexcept {
  const auto address = bit_cast<std::uintptr_t>(at);
  return (bytes - address % bytes) % bytes / sizeof(float);
}

}  // namespace deltawire
