// Moves chosen lanes of an AVX2 vector to its front. AVX-512 has an instruction for it.
#pragma once

#include <cstdint>

#include <immintrin.h>

namespace deltawire {

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
