// Sums and their largest magnitude, eight at a time.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "base/float_bits.h"
#include "base/prefetch.h"
#include "codecs/kernels/addends.h"

namespace deltawire {

template <bool kAdds>
[[gnu::always_inline]] inline __m256 eight_of(const Addends& x, std::uint64_t i) noexcept {
  const __m256 in = _mm256_loadu_ps(x.in + i);
  return kAdds ? _mm256_add_ps(in, _mm256_loadu_ps(x.residual + i)) : in;
}

// REQUIRES of kStreams: a boundary of 32 bytes.
template <bool kStreams>
[[gnu::always_inline]] inline void store_eight(float* at, __m256 values) noexcept {
  if (kStreams) {
    _mm256_stream_ps(at, values);
  } else {
    _mm256_storeu_ps(at, values);
  }
}

// To a boundary of 16 bytes, which is all that is asked of `left` here: blocks can't begin at another
// element.
[[gnu::always_inline]] inline void stream_halves(float* at, __m256 values) noexcept {
  _mm_stream_ps(at, _mm256_castps256_ps128(values));
  _mm_stream_ps(at + 4, _mm256_extractf128_ps(values, 1));
}

[[gnu::always_inline]] inline __m256i larger_of(__m256i largest, __m256 x) noexcept {
  const __m256i bits = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(kMagnitudeMask));
  return _mm256_max_epu32(largest, bits);
}

[[gnu::always_inline]] inline std::uint32_t largest_of_eight(__m256i lanes) noexcept {
  __m128i most = _mm_max_epu32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0x4E));
  most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0xB1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(most));
}

// From element `i` on; leaves in `i` how far whole steps went.
template <bool kAdds, bool kKeeps, bool kStreams>
[[gnu::always_inline]] inline std::uint32_t add_up_whole(const Addends& x, std::uint64_t& i) noexcept {
  constexpr std::uint64_t kStep = 32;
  __m256i largest[4] = {};
  for (; i + kStep <= x.count; i += kStep) {
    prefetch_page(x.in + i, sizeof(float) * kStep);
    if (kAdds) prefetch_page(x.residual + i, sizeof(float) * kStep);
    for (unsigned k = 0; k < 4; ++k) {
      const __m256 sum = eight_of<kAdds>(x, i + 8 * k);
      if (kKeeps) store_eight<kStreams>(x.left + i + 8 * k, sum);
      largest[k] = larger_of(largest[k], sum);
    }
  }
  if (kStreams) _mm_sfence();
  return largest_of_eight(
      _mm256_max_epu32(_mm256_max_epu32(largest[0], largest[1]), _mm256_max_epu32(largest[2], largest[3])));
}

// What add_up() does.
[[gnu::always_inline]] inline std::uint32_t add_up_avx2(const Addends& x) noexcept {
  std::uint64_t i = 0;
  std::uint32_t largest = 0;
  std::uint32_t of_first = 0;
  if (x.residual == nullptr) {
    largest =
        x.left == nullptr ? add_up_whole<false, false, false>(x, i) : add_up_whole<false, true, false>(x, i);
  } else if (x.left == nullptr) {
    largest = add_up_whole<true, false, false>(x, i);
  } else if (x.left != x.residual && x.count * sizeof(float) >= kStreamedBytes) {
    i = floats_before_boundary(x.left, 32);
    of_first = add_up(some_of(x, 0, i));
    largest = add_up_whole<true, true, true>(x, i);
  } else {
    largest = add_up_whole<true, true, false>(x, i);
  }
  const std::uint32_t of_rest = add_up(some_of(x, i, x.count - i));
  largest = of_first > largest ? of_first : largest;
  return of_rest > largest ? of_rest : largest;
}

}  // namespace deltawire
