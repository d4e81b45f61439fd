// What encoding and decoding for AVX2 share: eight words at a time; tables of more than 32 entries are read
// by scalar loads, as gathers are slower on every machine measured.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

inline constexpr std::uint32_t kVectorWords = 8;
inline constexpr unsigned kVectorHalves = 2 * kVectorWords;  // numbers of 16 bits in a vector
inline constexpr unsigned kBytesAtOnce = 4 * kVectorWords;

[[gnu::always_inline]] inline __m256i load_words(const void* from) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

[[gnu::always_inline]] inline void store_words(void* to, __m256i words) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(to), words);
}

[[gnu::always_inline]] inline __m256i all_words(std::uint32_t value) noexcept {
  return _mm256_set1_epi32(static_cast<int>(value));
}

[[gnu::always_inline]] inline __m256i all_halves(std::uint32_t value) noexcept {
  return _mm256_set1_epi16(static_cast<short>(value));
}

[[gnu::always_inline]] inline __m256i all_bytes(std::uint32_t value) noexcept {
  return _mm256_set1_epi8(static_cast<char>(value));
}

// A table of sixteen bytes, for both halves of a vector.
[[gnu::always_inline]] inline __m256i byte_table(const std::uint8_t* bytes) noexcept {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}

// A table of 32 bytes, for both halves of a vector.
class Table32 {
 public:
  [[gnu::always_inline]] explicit Table32(const std::uint8_t* bytes) noexcept
      : first_(byte_table(bytes)), second_(byte_table(bytes + 16)) {}

  [[gnu::always_inline]] __m256i operator()(__m256i places) const noexcept {
    // A place with its highest bit set gives 0: those from 16 on, and those below.
    const __m256i first = _mm256_shuffle_epi8(first_, _mm256_add_epi8(places, all_bytes(0x70)));
    return _mm256_or_si256(first, _mm256_shuffle_epi8(second_, _mm256_sub_epi8(places, all_bytes(16))));
  }

 private:
  __m256i first_;
  __m256i second_;
};

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

// The same of eight numbers of 16 bits, as places of bytes; what is not chosen becomes 0, or comes last.
struct HalfPlaces {
  alignas(16) std::uint8_t gather[256][16];
  alignas(16) std::uint8_t spread[256][16];
};

constexpr HalfPlaces make_half_places() noexcept {
  HalfPlaces places{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned chosen = 0;
    for (unsigned i = 0; i < 8; ++i) {
      const bool is_chosen = (mask >> i & 1) != 0;
      for (unsigned byte = 0; byte < 2; ++byte) {
        places.spread[mask][2 * i + byte] = static_cast<std::uint8_t>(is_chosen ? 2 * chosen + byte : 0x80);
        if (is_chosen) places.gather[mask][2 * chosen + byte] = static_cast<std::uint8_t>(2 * i + byte);
      }
      chosen += is_chosen ? 1 : 0;
    }
  }
  return places;
}

[[gnu::always_inline]] inline __m128i bytes_of(const std::uint8_t (&places)[16]) noexcept {
  return _mm_load_si128(reinterpret_cast<const __m128i*>(places));
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

// The other way round, from the lower 24 bits; 4 bytes of anything behind them.
[[gnu::always_inline]] inline void write_three_bytes(__m256i words, std::byte* at) noexcept {
  const __m256i places = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,  //
                                          0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  const __m256i packed = _mm256_shuffle_epi8(words, places);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm256_castsi256_si128(packed));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at + 4 * kSignMantissaBytes),
                   _mm256_extracti128_si256(packed, 1));
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
