// gcomp_words_avx512.h for VBMI and VBMI2.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

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

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
