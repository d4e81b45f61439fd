// Values out of codes: eight codes of a width are as many bytes.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 8;
constexpr std::uint64_t kPeekBytes = 8;

__m256i all_of(std::uint32_t value) noexcept {
  return _mm256_set1_epi32(static_cast<int>(value));
}

// All bits of the lanes below `count`.
__m256i first_lanes(std::uint32_t count) noexcept {
  return _mm256_cmpgt_epi32(all_of(count < kLanes ? count : kLanes),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// What must be readable of a stream: copied to where it is, with zeros behind it, if it lies too near to its
// end.
struct Readable {
  std::byte copy[kTile * std::uint64_t{kMaxCodeBits + 1} / 8 + 2 * kPeekBytes];

  const std::byte* of(const BitWindow& stream, std::uint64_t first, std::uint64_t bytes) noexcept {
    if (first + bytes <= stream.bytes) return stream.at + first;
    const std::uint64_t left = first < stream.bytes ? stream.bytes - first : 0;
    std::memset(copy, 0, bytes);
    if (left > 0) std::memcpy(copy, stream.at + first, left < bytes ? left : bytes);
    return copy;
  }
};

// Eight numbers.
__m256i numbers(const std::byte* from, unsigned bits) noexcept {
  if (bits <= 8) {
    const std::uint64_t mask = std::uint64_t{0x0101010101010101} * ((1U << bits) - 1);
    const std::uint64_t bytes = _pdep_u64(load_le<std::uint64_t>(from), mask);
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(bytes)));
  }
  const std::uint64_t mask = std::uint64_t{0x0001000100010001} * ((1U << bits) - 1);
  const unsigned half = 4 * bits;
  const std::uint64_t low = _pdep_u64(load_le<std::uint64_t>(from), mask);
  const std::uint64_t high = _pdep_u64(load_le<std::uint64_t>(from + half / 8) >> half % 8, mask);
  return _mm256_cvtepu16_epi32(_mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low)));
}

}  // namespace

void read_values(ValueStream& values, std::uint32_t count, float* out) {
  Readable readable;
  const unsigned bits = values.code_bits + 1;
  const std::byte* from = readable.of(values.stream, values.stream.position / 8,
                                      std::uint64_t{kTile} * bits / 8 + 2 * kPeekBytes);
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(31 - values.code_bits));
  __m256i lowest = all_of(values.lowest);
  __m256i highest = all_of(values.highest);
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    const __m256i number = numbers(from, bits);
    const __m256i code = _mm256_and_si256(number, all_of((1U << values.code_bits) - 1));
    const __m256i sign = _mm256_and_si256(_mm256_sll_epi32(number, shift), all_of(0x80000000));
    const __m256i value = _mm256_castps_si256(_mm256_i32gather_ps(values.of_code, code, 4));
    _mm256_storeu_ps(out + i, _mm256_castsi256_ps(_mm256_xor_si256(value, sign)));
    const __m256i lanes = first_lanes(count - i);
    lowest = _mm256_min_epu32(lowest, _mm256_or_si256(code, _mm256_andnot_si256(lanes, all_of(0xFFFFFFFF))));
    highest = _mm256_max_epu32(highest, _mm256_and_si256(code, lanes));
    from += bits;
  }
  values.stream.position += std::uint64_t{count} * bits;
  std::uint32_t of_lanes[2][kLanes];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(of_lanes[0]), lowest);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(of_lanes[1]), highest);
  for (unsigned i = 0; i < kLanes; ++i) {
    values.lowest = of_lanes[0][i] < values.lowest ? of_lanes[0][i] : values.lowest;
    values.highest = of_lanes[1][i] > values.highest ? of_lanes[1][i] : values.highest;
  }
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
