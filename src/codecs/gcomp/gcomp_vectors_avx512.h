// What encoding and decoding for AVX-512 share.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

// Of sixteen values from `first` on, those below `count`.
[[gnu::always_inline]] inline __mmask16 first_lanes(std::uint32_t count, std::uint32_t first) noexcept {
  if (count <= first) return 0;
  const std::uint32_t some = count - first < 16 ? (1U << (count - first)) - 1 : 0xFFFFU;
  return static_cast<__mmask16>(some);
}

// A table of numbers of 16 bits, 32 in each part.
template <unsigned kParts>
struct Table {
  __m512i part[kParts];
};
using LookUp = Table<8>;

[[gnu::always_inline]] inline LookUp load_look_up(const std::uint16_t (&entries)[256]) noexcept {
  LookUp table;
#pragma GCC unroll 8
  for (unsigned i = 0; i < 8; ++i) table.part[i] = _mm512_loadu_si512(entries + 32 * i);
  return table;
}

// The entries of 32 indexes, each in the low 8 bits of 16.
[[gnu::always_inline]] inline __m512i look_up(const LookUp& table, __m512i index) noexcept {
  const __mmask32 in_64 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
  const __mmask32 in_128 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
  const __m512i a = _mm512_permutex2var_epi16(table.part[0], index, table.part[1]);
  const __m512i b = _mm512_permutex2var_epi16(table.part[2], index, table.part[3]);
  const __m512i c = _mm512_permutex2var_epi16(table.part[4], index, table.part[5]);
  const __m512i d = _mm512_permutex2var_epi16(table.part[6], index, table.part[7]);
  const __m512i low = _mm512_mask_mov_epi16(a, in_64, b);
  const __m512i high = _mm512_mask_mov_epi16(c, in_64, d);
  return _mm512_mask_mov_epi16(low, in_128, high);
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
