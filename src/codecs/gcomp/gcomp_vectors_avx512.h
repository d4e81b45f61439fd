// What encoding and decoding for AVX-512 share.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

// Which of sixteen values from `first` on are below `count`.
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

// What AVX-512 F, BW, DQ and VL do in several instructions, and VBMI and VBMI2 in one.
#ifndef __AVX512VBMI2__

// Writes the words that `leave` names, and behind them anything, up to 32 bytes. Returns where they end.
[[gnu::always_inline]] inline std::byte* append_words(__mmask16 leave, __m256i words,
                                                      std::byte* at) noexcept {
  const __m512i together = _mm512_maskz_compress_epi32(leave, _mm512_cvtepu16_epi32(words));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtepi32_epi16(together));
  return at + popcount(leave) * kWordBytes;
}

// The same of 32 words, and up to 64 bytes.
[[gnu::always_inline]] inline std::byte* append_words(__mmask32 leave, __m512i words,
                                                      std::byte* at) noexcept {
  at = append_words(static_cast<__mmask16>(leave), _mm512_castsi512_si256(words), at);
  return append_words(static_cast<__mmask16>(leave >> 16), _mm512_extracti64x4_epi64(words, 1), at);
}

// The upper 24 bits of sixteen words, side by side.
[[gnu::always_inline]] inline __m512i upper_to_three_bytes(__m512i words) noexcept {
  const __m128i packed = _mm_setr_epi8(1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, -1, -1, -1, -1);
  const __m512i fours = _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(packed));
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15),
                                  fours);
}

// And back: their first 48 bytes.
[[gnu::always_inline]] inline __m512i three_bytes_to_upper(__m512i packed) noexcept {
  const __m512i spread =
      _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11), packed);
  const __m128i upper = _mm_setr_epi8(-1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11);
  return _mm512_shuffle_epi8(spread, _mm512_broadcast_i32x4(upper));
}

// The same as the lower 24 bits, and their highest byte above them once more.
[[gnu::always_inline]] inline __m512i three_bytes_to_ends(__m512i packed) noexcept {
  const __m512i spread =
      _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11), packed);
  const __m128i ends = _mm_setr_epi8(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
  return _mm512_shuffle_epi8(spread, _mm512_broadcast_i32x4(ends));
}

#else

[[gnu::always_inline]] inline std::byte* append_words(__mmask32 leave, __m512i words,
                                                      std::byte* at) noexcept {
  _mm512_storeu_si512(at, _mm512_maskz_compress_epi16(leave, words));
  return at + popcount(leave) * kWordBytes;
}

[[gnu::always_inline]] inline __m512i upper_to_three_bytes(__m512i words) noexcept {
  alignas(64) static constexpr std::uint8_t kPlaces[64] = {
      1,  2,  3,  5,  6,  7,  9,  10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26, 27, 29, 30, 31,
      33, 34, 35, 37, 38, 39, 41, 42, 43, 45, 46, 47, 49, 50, 51, 53, 54, 55, 57, 58, 59, 61, 62, 63};
  return _mm512_permutexvar_epi8(_mm512_load_si512(kPlaces), words);
}

[[gnu::always_inline]] inline __m512i three_bytes_to_upper(__m512i packed) noexcept {
  alignas(64) static constexpr std::uint8_t kPlaces[64] = {
      0,  0,  1,  2,  0,  3,  4,  5,  0,  6,  7,  8,  0,  9,  10, 11, 0,  12, 13, 14, 0,  15,
      16, 17, 0,  18, 19, 20, 0,  21, 22, 23, 0,  24, 25, 26, 0,  27, 28, 29, 0,  30, 31, 32,
      0,  33, 34, 35, 0,  36, 37, 38, 0,  39, 40, 41, 0,  42, 43, 44, 0,  45, 46, 47};
  // The lowest bytes, which are of no number, are 0.
  return _mm512_maskz_permutexvar_epi8(0xEEEEEEEEEEEEEEEEU, _mm512_load_si512(kPlaces), packed);
}

[[gnu::always_inline]] inline __m512i three_bytes_to_ends(__m512i packed) noexcept {
  alignas(64) static constexpr std::uint8_t kPlaces[64] = {
      0,  1,  2,  2,  3,  4,  5,  5,  6,  7,  8,  8,  9,  10, 11, 11, 12, 13, 14, 14, 15, 16,
      17, 17, 18, 19, 20, 20, 21, 22, 23, 23, 24, 25, 26, 26, 27, 28, 29, 29, 30, 31, 32, 32,
      33, 34, 35, 35, 36, 37, 38, 38, 39, 40, 41, 41, 42, 43, 44, 44, 45, 46, 47, 47};
  return _mm512_permutexvar_epi8(_mm512_load_si512(kPlaces), packed);
}

#endif  // __AVX512VBMI2__

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
