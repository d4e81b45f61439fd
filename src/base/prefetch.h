// Memory that is far apart, on its way before it is needed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"

namespace deltawire {

// Asks for the line into the second cache. It waits for more lines at a time than the first: that halves the
// time of additions to places that follow no pattern.
[[gnu::always_inline]] inline void prefetch_far(const void* at) noexcept {
  __builtin_prefetch(at, 0, 2);
}

// For a pass over memory that has reached `at`: asks for some bytes, whole lines, one page ahead. The CPU
// foresees such a pass by itself, but only after some lines of each page, and parts of 4,096 values have four
// pages. The memory may end before: the next part mostly lies behind it, and where nothing lies nothing is
// read.
[[gnu::always_inline]] inline void prefetch_page(const void* at, std::size_t bytes) noexcept {
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::size_t kLine = 64;
  const std::uintptr_t from = bit_cast<std::uintptr_t>(at) + kPage;
  for (std::size_t i = 0; i < bytes; i += kLine) __builtin_prefetch(bit_cast<const void*>(from + i));
}

// When a kernel's output is written past the caches.

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
