// What AVX-512 F, BW, DQ and VL do in several instructions, and VBMI2 in one: gcomp_words_avx512vbmi.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

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

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
