// Values out of codes: sixteen codes of a width are twice as many bytes. Up to 128 values lie in registers.
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

constexpr std::uint32_t kLanes = 16;
constexpr std::uint64_t kPeekBytes = 16;

// What must be readable of a stream: copied to where it is, with zeros behind it, if it lies too near to its
// end.
struct Readable {
  std::byte copy[kTile * std::uint64_t{kMaxCodeBits + 1} / 8 + kPeekBytes];

  const std::byte* of(const BitWindow& stream, std::uint64_t first, std::uint64_t bytes) noexcept {
    if (first + bytes <= stream.bytes) return stream.at + first;
    const std::uint64_t left = first < stream.bytes ? stream.bytes - first : 0;
    std::memset(copy, 0, bytes);
    if (left > 0) std::memcpy(copy, stream.at + first, left < bytes ? left : bytes);
    return copy;
  }
};

// Eight numbers of more than 8 bits, in 16 bits each.
__m128i eight_wide(const std::byte* from, unsigned bits) noexcept {
  const std::uint64_t mask = std::uint64_t{0x0001000100010001} * ((1U << bits) - 1);
  const unsigned half = 4 * bits;
  const std::uint64_t low = _pdep_u64(load_le<std::uint64_t>(from), mask);
  const std::uint64_t high = _pdep_u64(load_le<std::uint64_t>(from + half / 8) >> half % 8, mask);
  return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
}

// Sixteen numbers.
__m512i numbers(const std::byte* from, unsigned bits) noexcept {
  if (bits <= 8) {
    const std::uint64_t mask = std::uint64_t{0x0101010101010101} * ((1U << bits) - 1);
    const std::uint64_t low = _pdep_u64(load_le<std::uint64_t>(from), mask);
    const std::uint64_t high = _pdep_u64(load_le<std::uint64_t>(from + bits), mask);
    return _mm512_cvtepu8_epi32(_mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low)));
  }
  return _mm512_cvtepu16_epi32(_mm256_set_m128i(eight_wide(from + bits, bits), eight_wide(from, bits)));
}

// The values of up to 32, 64 or 128 codes. Of 256 they would leave no register for anything else.
template <unsigned kPairs>
struct Registers {
  __m512 of_code[2 * kPairs];

  explicit Registers(const float* values) noexcept {
    for (unsigned i = 0; i < 2 * kPairs; ++i) of_code[i] = _mm512_loadu_ps(values + i * kLanes);
  }

  __m512 operator[](__m512i code) const noexcept {
    __m512 found[kPairs];
    for (unsigned i = 0; i < kPairs; ++i) {
      found[i] = _mm512_permutex2var_ps(of_code[2 * i], code, of_code[2 * i + 1]);
    }
    for (unsigned step = 1; step < kPairs; step *= 2) {
      const __mmask16 upper = _mm512_test_epi32_mask(code, _mm512_set1_epi32(static_cast<int>(32 * step)));
      for (unsigned i = 0; i < kPairs; i += 2 * step) {
        found[i] = _mm512_mask_mov_ps(found[i], upper, found[i + step]);
      }
    }
    return found[0];
  }
};

struct Memory {
  const float* values;

  explicit Memory(const float* of_code) noexcept : values(of_code) {}
  __m512 operator[](__m512i code) const noexcept { return _mm512_i32gather_ps(code, values, 4); }
};

template <class Table>
void read(ValueStream& values, std::uint32_t count, float* out) noexcept {
  Readable readable;
  const Table table(values.of_code);
  const unsigned bits = values.code_bits + 1;
  const std::byte* from =
      readable.of(values.stream, values.stream.position / 8, std::uint64_t{kTile} * bits / 8 + kPeekBytes);
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(31 - values.code_bits));
  const __m512i codes = _mm512_set1_epi32((1 << values.code_bits) - 1);
  const __m512i signs = _mm512_set1_epi32(static_cast<int>(0x80000000));
  __m512i lowest = _mm512_set1_epi32(static_cast<int>(values.lowest));
  __m512i highest = _mm512_set1_epi32(static_cast<int>(values.highest));
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    const std::uint32_t left = count - i;
    const auto lanes = static_cast<__mmask16>(left < kLanes ? (1U << left) - 1 : 0xFFFF);
    const __m512i number = numbers(from, bits);
    const __m512i code = _mm512_and_si512(number, codes);
    const __m512i sign = _mm512_and_si512(_mm512_sll_epi32(number, shift), signs);
    const __m512i value = _mm512_xor_si512(_mm512_castps_si512(table[code]), sign);
    _mm512_mask_storeu_epi32(out + i, lanes, value);
    lowest = _mm512_mask_min_epu32(lowest, lanes, lowest, code);
    highest = _mm512_mask_max_epu32(highest, lanes, highest, code);
    from += 2 * bits;
  }
  values.stream.position += std::uint64_t{count} * bits;
  values.lowest = _mm512_reduce_min_epu32(lowest);
  values.highest = _mm512_reduce_max_epu32(highest);
}

}  // namespace

void read_values(ValueStream& values, std::uint32_t count, float* out) {
  if (values.code_bits <= 5) return read<Registers<1>>(values, count, out);
  if (values.code_bits == 6) return read<Registers<2>>(values, count, out);
  if (values.code_bits == 7) return read<Registers<4>>(values, count, out);
  read<Memory>(values, count, out);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
