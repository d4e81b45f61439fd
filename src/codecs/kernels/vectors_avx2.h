// What kernels for AVX2 do with vectors of eight values.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/kernels/addends.h"

namespace deltawire {

// Sums and their largest magnitude.

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

// Moves chosen lanes to the front. AVX-512 has an instruction for it.

// For each mask of eight lanes the numbers of its lanes, from the lowest on.
struct CompactionTable {
  std::uint64_t lanes[256] = {};
};

[[gnu::always_inline]] constexpr CompactionTable compaction_table() noexcept {
  CompactionTable table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned chosen = 0;
    for (unsigned lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) != 0) table.lanes[mask] |= std::uint64_t{lane} << 8 * chosen++;
    }
  }
  return table;
}

inline constexpr CompactionTable kCompaction = compaction_table();

// Where the lanes of `mask` come from, for compacted(). REQUIRES: mask < 256.
[[gnu::always_inline]] inline __m256i compaction_of(unsigned mask) noexcept {
  return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(kCompaction.lanes[mask])));
}

[[gnu::always_inline]] inline __m256i compacted(__m256i values, __m256i order) noexcept {
  return _mm256_permutevar8x32_epi32(values, order);
}

}  // namespace deltawire
