// What encoding and decoding for AVX2 share: eight words at a time, tables read by scalar loads, as gathers
// are slower on every machine measured.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

inline constexpr std::uint32_t kVectorWords = 8;

[[gnu::always_inline]] inline __m256i load_words(const void* from) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

[[gnu::always_inline]] inline void store_words(void* to, __m256i words) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(to), words);
}

[[gnu::always_inline]] inline __m256i all_words(std::uint32_t value) noexcept {
  return _mm256_set1_epi32(static_cast<int>(value));
}

// Bit i: word i has its highest bit set.
[[gnu::always_inline]] inline std::uint32_t high_bits(__m256i words) noexcept {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(words)));
}

// For each mask of 8 words, the places that a permutation takes them from: to bring the chosen ones together
// at the front, and to spread what stands together to the chosen places.
struct Places {
  alignas(8) std::uint8_t gather[256][8];
  alignas(8) std::uint8_t spread[256][8];
};

constexpr Places make_places() noexcept {
  Places places{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned chosen = 0;
    for (unsigned i = 0; i < 8; ++i) {
      places.spread[mask][i] = static_cast<std::uint8_t>(chosen);
      if ((mask >> i & 1) != 0) places.gather[mask][chosen++] = static_cast<std::uint8_t>(i);
    }
  }
  return places;
}

// The same of eight numbers of 16 bits, as places of bytes; what is not chosen becomes 0.
struct WordPlaces {
  alignas(16) std::uint8_t spread[256][16];
};

constexpr WordPlaces make_word_places() noexcept {
  WordPlaces places{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned chosen = 0;
    for (unsigned i = 0; i < 8; ++i) {
      const bool is_chosen = (mask >> i & 1) != 0;
      for (unsigned byte = 0; byte < 2; ++byte) {
        places.spread[mask][2 * i + byte] = static_cast<std::uint8_t>(is_chosen ? 2 * chosen + byte : 0x80);
      }
      chosen += is_chosen ? 1 : 0;
    }
  }
  return places;
}

[[gnu::always_inline]] inline __m256i places_of(const std::uint8_t (&places)[8]) noexcept {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(places)));
}

// Eight numbers of 3 bytes, as the upper 24 bits of as many words.
[[gnu::always_inline]] inline __m256i three_bytes_to_upper(const std::byte* packed) noexcept {
  const __m256i halves =
      _mm256_permutevar8x32_epi32(load_words(packed), _mm256_setr_epi32(0, 1, 2, 3, 3, 4, 5, 6));
  const __m256i upper = _mm256_setr_epi8(-1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11,  //
                                         -1, 0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11);
  return _mm256_shuffle_epi8(halves, upper);
}

// The other way round: the upper 24 bits of eight words.
[[gnu::always_inline]] inline __m256i upper_to_three_bytes(__m256i words) noexcept {
  const __m256i packed = _mm256_setr_epi8(1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, -1, -1, -1, -1,  //
                                          1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, -1, -1, -1, -1);
  return _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(words, packed),
                                     _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7));
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
