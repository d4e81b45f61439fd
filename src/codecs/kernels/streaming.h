// When output is written past the caches, and how bytes are copied there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

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

// Copies what is in the caches past them. The two don't overlap.
inline void copy_streamed(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#ifdef __SSE2__
  constexpr std::size_t kLine = 64;
  const std::size_t before = (kLine - bit_cast<std::uintptr_t>(to) % kLine) % kLine;
  if (bytes > before) {
    std::memcpy(to, from, before);
    to += before;
    from += before;
    bytes -= before;
    for (; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) {
      for (std::size_t i = 0; i < kLine; i += sizeof(__m128i)) {
        const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), some);
      }
    }
    _mm_sfence();
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace deltawire
