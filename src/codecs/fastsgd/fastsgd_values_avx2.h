// Values by a look into their table each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/fastsgd/fastsgd_values_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// The numbers of a tile, with room for a whole vector behind the last.
struct Numbers {
  static constexpr std::uint32_t kLanes = 16;
  static constexpr std::uint32_t kTogether = 8;
  static constexpr std::uint64_t kPeekBytes = 16;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{kTile} * (kMaxCodeBits + 1) / 8;

  alignas(32) std::uint16_t at[kTile + kLanes];

  // Eight numbers of a width are as many bytes.
  [[gnu::always_inline]] void read(const BitWindow& stream, unsigned bits, std::uint32_t count) noexcept {
    std::byte copy[kMostBytes + kPeekBytes];
    const std::uint64_t first = stream.position / 8;
    const std::uint64_t bytes = std::uint64_t{(count + kTogether - 1) / kTogether} * bits + kPeekBytes;
    const std::byte* from = stream.at + first;
    if (first + bytes > stream.bytes) {
      std::memset(copy, 0, bytes);
      if (first < stream.bytes)
        std::memcpy(copy, from, stream.bytes - first < bytes ? stream.bytes - first : bytes);
      from = copy;
    }
    bits <= 8 ? read_narrow(from, bits, count) : read_wide(from, bits, count);
  }

  // The smallest and the largest code. Reads a whole vector.
  [[gnu::always_inline]] void find_extent(std::uint32_t count, ValueStream& values) const noexcept {
    const __m256i codes = _mm256_set1_epi16(static_cast<short>((1U << values.code_bits) - 1));
    __m256i lowest = codes;
    __m256i highest = _mm256_setzero_si256();
    for (std::uint32_t i = 0; i < count; i += kLanes) {
      const __m256i number = _mm256_load_si256(reinterpret_cast<const __m256i*>(at + i));
      const __m256i code = _mm256_and_si256(number, codes);
      lowest = _mm256_min_epu16(lowest, code);
      highest = _mm256_max_epu16(highest, code);
    }
    alignas(32) std::uint16_t lanes[2][kLanes];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes[0]), lowest);
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes[1]), highest);
    for (std::uint32_t i = 0; i < kLanes; ++i) {
      values.lowest = lanes[0][i] < values.lowest ? lanes[0][i] : values.lowest;
      values.highest = lanes[1][i] > values.highest ? lanes[1][i] : values.highest;
    }
  }

 private:
  [[gnu::always_inline]] void read_narrow(const std::byte* from, unsigned bits,
                                          std::uint32_t count) noexcept {
    const std::uint64_t mask = std::uint64_t{0x0101010101010101} * ((1U << bits) - 1);
    for (std::uint32_t i = 0; i < count; i += kTogether, from += bits) {
      const std::uint64_t bytes = _pdep_u64(load_le<std::uint64_t>(from), mask);
      _mm_store_si128(reinterpret_cast<__m128i*>(at + i),
                      _mm_cvtepu8_epi16(_mm_cvtsi64_si128(static_cast<long long>(bytes))));
    }
  }

  [[gnu::always_inline]] void read_wide(const std::byte* from, unsigned bits, std::uint32_t count) noexcept {
    const std::uint64_t mask = std::uint64_t{0x0001000100010001} * ((1U << bits) - 1);
    const unsigned half = 4 * bits;
    for (std::uint32_t i = 0; i < count; i += kTogether, from += bits) {
      const std::uint64_t words[2] = {_pdep_u64(load_le<std::uint64_t>(from), mask),
                                      _pdep_u64(load_le<std::uint64_t>(from + half / 8) >> half % 8, mask)};
      std::memcpy(at + i, words, sizeof words);
    }
  }
};

// Looks up one by one: that takes less time than vectors that gather.
[[gnu::always_inline]] inline void read_one_by_one(ValueStream& values, std::uint32_t count,
                                                   float* out) noexcept {
  const unsigned bits = values.code_bits + 1;
  Numbers numbers;
  numbers.read(values.stream, bits, count);
  // Behind the last number its like, which changes no extent.
  for (std::uint32_t i = 0; i < Numbers::kLanes; ++i) numbers.at[count + i] = numbers.at[count - 1];
  numbers.find_extent(count, values);
  put_values(*values.tables, numbers.at, count, out);
  values.stream.position += std::uint64_t{count} * bits;
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
