// Copying long memory: within the caches, or past them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/bit_functions.h"
#include "base/prefetch.h"

namespace deltawire {

// Copies within the caches, between memory that does not overlap. By pieces for which std::memcpy takes
// vectors: of longer ones it leaves it to `rep movsb`, which is up to ten times slower on Zen 3 and Zen 4,
// depending on where the two lie in their pages.
inline void copy_cached(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  constexpr std::size_t kPiece = 1536;
  while (bytes > 0) {
    std::size_t some = bytes < kPiece ? bytes : kPiece;
    asm("" : "+r"(some));  // GCC would copy a length that it knows by `rep movsq`
    std::memcpy(to, from, some);
    to += some;
    from += some;
    bytes -= some;
  }
}

// Whether output of so many bytes should go past the caches.
inline bool goes_past_caches(std::uint64_t bytes) noexcept {
  return bytes >= kStreamedBytes;
}

// Copies what is in the caches past them, so that lines which are replaced whole aren't read first. The two
// don't overlap.
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
      prefetch_page(from, kLine);
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
