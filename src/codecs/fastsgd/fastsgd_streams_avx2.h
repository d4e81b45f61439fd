// Values: eight of a width are as many bytes, so that none waits for where the one before ended. Gaps: flags
// and masks of sixteen at a time; of four the bits are taken out by their masks at once, and appended.
// AVX-512 writes them the same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_encode_ops.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kValues = 8;  // that are written together
constexpr std::uint32_t kGaps = 16;   // that are looked at together
constexpr std::uint32_t kGapTile = 256;

// Eight numbers of code_bits + 1 bits each, still in 16 bits.
__m128i numbers_of(const ChunkPairs& chunk, std::uint32_t at, unsigned code_bits) noexcept {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(chunk.codes + at));
  const __m128i magnitudes = _mm_and_si128(codes, _mm_set1_epi16(0x7FFF));
  const __m128i offsets = _mm_sub_epi16(magnitudes, _mm_set1_epi16(static_cast<short>(chunk.range.lowest)));
  const __m128i signs =
      _mm_sll_epi16(_mm_srli_epi16(codes, 15), _mm_cvtsi32_si128(static_cast<int>(code_bits)));
  return _mm_or_si128(offsets, signs);
}

std::uint64_t low_half(__m128i bits) noexcept {
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(bits));
}

std::uint64_t high_half(__m128i bits) noexcept {
  return static_cast<std::uint64_t>(_mm_extract_epi64(bits, 1));
}

// Sixteen numbers of code_bits + 1 bits each, still in 16 bits.
__m256i sixteen_numbers(const ChunkPairs& chunk, std::uint32_t at, unsigned code_bits) noexcept {
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(chunk.codes + at));
  const __m256i magnitudes = _mm256_and_si256(codes, _mm256_set1_epi16(0x7FFF));
  const __m256i lowest = _mm256_set1_epi16(static_cast<short>(chunk.range.lowest));
  const __m128i to_place = _mm_cvtsi32_si128(static_cast<int>(15 - code_bits));
  const __m256i signs = _mm256_srl_epi16(_mm256_andnot_si256(_mm256_set1_epi16(0x7FFF), codes), to_place);
  return _mm256_or_si256(_mm256_sub_epi16(magnitudes, lowest), signs);
}

// Numbers of up to 8 bits, as bytes. Reads whole vectors of codes.
std::byte* write_narrow(const ChunkPairs& chunk, unsigned code_bits, std::uint32_t end,
                        std::byte* out) noexcept {
  constexpr std::uint32_t kTogether = 32;
  const std::uint64_t mask = std::uint64_t{0x0101010101010101} * ((1U << (code_bits + 1)) - 1);
  std::uint32_t i = 0;
  for (; i + kTogether <= end; i += kTogether) {
    const __m256i packed = _mm256_packus_epi16(sixteen_numbers(chunk, i, code_bits),
                                               sixteen_numbers(chunk, i + kTogether / 2, code_bits));
    alignas(32) std::uint64_t words[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(words), _mm256_permute4x64_epi64(packed, 0xD8));
    for (const std::uint64_t word : words) {
      store_le(out, static_cast<std::uint64_t>(_pext_u64(word, mask)));
      out += code_bits + 1;
    }
  }
  for (; i < end; i += kValues) {
    const __m128i numbers = numbers_of(chunk, i, code_bits);
    store_le(out, static_cast<std::uint64_t>(_pext_u64(low_half(_mm_packus_epi16(numbers, numbers)), mask)));
    out += code_bits + 1;
  }
  return out;
}

// Numbers of 9 to 12 bits: four at a time, whose end may lie inside a byte.
std::byte* write_wide(const ChunkPairs& chunk, unsigned code_bits, std::uint32_t end,
                      std::byte* out) noexcept {
  const std::uint64_t mask = std::uint64_t{0x0001000100010001} * ((1U << (code_bits + 1)) - 1);
  const unsigned half = 4 * (code_bits + 1);
  for (std::uint32_t i = 0; i < end; i += kValues) {
    const __m128i numbers = numbers_of(chunk, i, code_bits);
    const std::uint64_t low = _pext_u64(low_half(numbers), mask);
    const std::uint64_t high = _pext_u64(high_half(numbers), mask);
    store_le(out, low);
    store_le(out + half / 8, low >> half / 8 * 8 | high << half % 8);
    out += code_bits + 1;
  }
  return out;
}

// The gaps of a tile, with the masks of their flags, in numbers of 8, 16 or 32 bits.
template <class Number>
struct Gaps {
  static constexpr std::uint32_t kInWord = 8 / sizeof(Number);

  alignas(64) Number gaps[kGapTile];
  alignas(64) Number masks[kGapTile];
};

__m256i load(const void* at) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}

void store(void* at, __m256i bits) noexcept {
  _mm256_store_si256(static_cast<__m256i*>(at), bits);
}

// Eight gaps of keys that follow on each other.
__m256i gaps_behind(const std::uint32_t* keys) noexcept {
  const __m256i distances = _mm256_sub_epi32(load(keys + 1), load(keys));
  return _mm256_sub_epi32(distances, _mm256_set1_epi32(1));
}

// Sixteen gaps, in 16 bits each.
__m256i short_gaps(const std::uint32_t* keys) noexcept {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(gaps_behind(keys), gaps_behind(keys + 8)), 0xD8);
}

__m128i joined(__m256i halves) noexcept {
  return _mm_packus_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}

// Flags and masks of gaps. `least`: the smallest gap that needs a flag or one above it; no gap is as large as
// that of a flag that none needs.
template <unsigned kFlagBits>
struct FlagFinder {
  static constexpr unsigned kHigher = (1U << kFlagBits) - 1;

  __m256i least[kHigher];  // in 32 bits
  __m256i masks;           // by flag
  __m128i bytes_of_masks;  // their low bytes, and behind them the next

  explicit FlagFinder(const GapLengths& of) noexcept {
    alignas(32) std::uint32_t of_flags[8] = {};
    alignas(16) std::uint8_t bytes[16] = {};
    for (unsigned flag = 0; flag <= kHigher; ++flag) {
      of_flags[flag] = (1U << of.of_flag[flag]) - 1;
      bytes[flag] = static_cast<std::uint8_t>(of_flags[flag]);
      bytes[8 + flag] = static_cast<std::uint8_t>(of_flags[flag] >> 8);
    }
    for (unsigned flag = 0; flag < kHigher; ++flag) {
      least[flag] = _mm256_set1_epi32(static_cast<int>(of.least[flag + 1]));
    }
    masks = load(of_flags);
    bytes_of_masks = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes));
  }

  // Sixteen gaps and their masks; returns their flags in bytes.
  __m128i look_at(const std::uint32_t* keys, std::uint8_t* gaps, std::uint8_t* masks_of) const noexcept {
    const __m128i gap = joined(short_gaps(keys));
    __m128i flag = _mm_setzero_si128();
    for (const __m256i& each : least) {
      const __m128i at_least = _mm256_castsi256_si128(_mm256_shuffle_epi8(each, _mm256_setzero_si256()));
      flag = _mm_sub_epi8(flag, _mm_cmpeq_epi8(_mm_max_epu8(gap, at_least), gap));
    }
    _mm_store_si128(reinterpret_cast<__m128i*>(gaps), gap);
    _mm_store_si128(reinterpret_cast<__m128i*>(masks_of), _mm_shuffle_epi8(bytes_of_masks, flag));
    return flag;
  }

  __m128i look_at(const std::uint32_t* keys, std::uint16_t* gaps, std::uint16_t* masks_of) const noexcept {
    const __m256i gap = short_gaps(keys);
    __m256i flag = _mm256_setzero_si256();
    for (const __m256i& each : least) {
      const __m256i at_least = _mm256_packus_epi32(each, each);
      flag = _mm256_sub_epi16(flag, _mm256_cmpeq_epi16(_mm256_max_epu16(gap, at_least), gap));
    }
    const __m256i places =
        _mm256_add_epi16(_mm256_mullo_epi16(flag, _mm256_set1_epi16(0x0101)), _mm256_set1_epi16(0x0800));
    store(gaps, gap);
    store(masks_of, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes_of_masks), places));
    return joined(flag);
  }

  __m128i look_at(const std::uint32_t* keys, std::uint32_t* gaps, std::uint32_t* masks_of) const noexcept {
    __m256i flags[2] = {};
    for (unsigned half = 0; half < 2; ++half) {
      const __m256i gap = gaps_behind(keys + 8 * half);
      for (const __m256i& each : least) {
        flags[half] = _mm256_sub_epi32(flags[half], _mm256_cmpeq_epi32(_mm256_max_epu32(gap, each), gap));
      }
      store(gaps + 8 * half, gap);
      store(masks_of + 8 * half, _mm256_permutevar8x32_epi32(masks, flags[half]));
    }
    return joined(_mm256_permute4x64_epi64(_mm256_packus_epi32(flags[0], flags[1]), 0xD8));
  }
};

// Sixteen flags, in 16 * kFlagBits bits.
template <unsigned kFlagBits>
std::uint64_t packed_flags(__m128i flags) noexcept {
  constexpr std::uint64_t kMask = std::uint64_t{0x0101010101010101} * ((1U << kFlagBits) - 1);
  return _pext_u64(low_half(flags), kMask) | _pext_u64(high_half(flags), kMask) << 8 * kFlagBits;
}

template <bool kIsShort, class Number>
[[gnu::always_inline]] inline void append(const Gaps<Number>& tile, std::uint32_t count,
                                          WordAppender& out) noexcept {
#pragma GCC unroll 4
  for (std::uint32_t i = 0; i < count; i += Gaps<Number>::kInWord) {
    std::uint64_t gaps;
    std::uint64_t mask;
    std::memcpy(&gaps, tile.gaps + i, sizeof gaps);
    std::memcpy(&mask, tile.masks + i, sizeof mask);
    out.put<kIsShort>(_pext_u64(gaps, mask), popcount(mask));
  }
}

// The last gaps, fewer than 16: their keys are copied to where vectors can be read.
template <unsigned kFlagBits, class Number>
void look_at_rest(const FlagFinder<kFlagBits>& finder, const std::uint32_t* keys, std::uint32_t count,
                  Gaps<Number>& tile, std::uint32_t at, std::byte* flags) noexcept {
  std::uint32_t copy[kGaps + 1] = {};
  std::memcpy(copy, keys, (count + 1) * sizeof *keys);
  // Gaps of 0 behind the last: their flags are the zero bits that fill the last byte.
  for (std::uint32_t i = count + 1; i <= kGaps; ++i) copy[i] = copy[i - 1] + 1;
  const std::uint64_t packed = packed_flags<kFlagBits>(finder.look_at(copy, tile.gaps + at, tile.masks + at));
  for (std::uint32_t i = count; i < kGaps; ++i) tile.masks[at + i] = 0;
  for (std::uint32_t i = 0; i < (count * kFlagBits + 7) / 8; ++i) {
    flags[i] = static_cast<std::byte>(packed >> 8 * i);
  }
}

template <unsigned kFlagBits, bool kIsShort, class Number>
std::byte* write(const ChunkPairs& chunk, unsigned key_bits, std::byte* flags) noexcept {
  const FlagFinder<kFlagBits> finder(GapLengths(key_bits, kFlagBits));
  const std::uint32_t count = chunk.pairs - 1;
  WordAppender out(flags + (count * kFlagBits + 7) / 8);
  Gaps<Number> tile;
  for (std::uint32_t first = 0; first < count; first += kGapTile) {
    const std::uint32_t left = count - first;
    const std::uint32_t taken = left < kGapTile ? left : kGapTile;
    const std::uint32_t* const keys = chunk.keys + first;
    std::uint32_t i = 0;
    for (; i + kGaps <= taken; i += kGaps) {
      const __m128i flag = finder.look_at(keys + i, tile.gaps + i, tile.masks + i);
      const std::uint64_t packed = to_little_endian(packed_flags<kFlagBits>(flag));
      std::memcpy(flags, &packed, std::uint64_t{2} * kFlagBits);
      flags += std::uint64_t{2} * kFlagBits;
    }
    if (i < taken) look_at_rest(finder, keys + i, taken - i, tile, i, flags);
    if (taken == kGapTile) {
      append<kIsShort>(tile, kGapTile, out);  // a number that is known: the loop is unrolled
    } else {
      append<kIsShort>(tile, taken, out);
    }
  }
  return out.finish();
}

template <unsigned kFlagBits>
std::byte* write_for(const ChunkPairs& chunk, unsigned key_bits, std::byte* out) noexcept {
  if (key_bits <= 7) return write<kFlagBits, true, std::uint8_t>(chunk, key_bits, out);
  if (key_bits == 8) return write<kFlagBits, false, std::uint8_t>(chunk, key_bits, out);
  if (key_bits <= 14) return write<kFlagBits, true, std::uint16_t>(chunk, key_bits, out);
  if (key_bits <= 16) return write<kFlagBits, false, std::uint16_t>(chunk, key_bits, out);
  return write<kFlagBits, false, std::uint32_t>(chunk, key_bits, out);
}

}  // namespace

std::byte* write_values(const ChunkPairs& chunk, unsigned code_bits, std::byte* out) {
  const std::uint32_t end = chunk.pairs / kValues * kValues;
  out = code_bits < 8 ? write_narrow(chunk, code_bits, end, out) : write_wide(chunk, code_bits, end, out);
  return reference::write_values(rest_of(chunk, end), code_bits, out);
}

std::byte* write_gaps(const ChunkPairs& chunk, unsigned key_bits, unsigned flag_bits, std::byte* out) {
  if (flag_bits > kVectorFlagBits || key_bits > kMostKeyBits) {
    return reference::write_gaps(chunk, key_bits, flag_bits, out);
  }
  return for_flag_bits(flag_bits,
                       [&]<unsigned kFlagBits>() { return write_for<kFlagBits>(chunk, key_bits, out); });
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
