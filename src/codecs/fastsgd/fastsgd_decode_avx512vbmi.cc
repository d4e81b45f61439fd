// Decoding for AVX-512 with VBMI: as AVX2 does, but for values of numbers of up to 8 bits. Of these, 64 at a
// time are looked up in tables that lie in registers, one for each byte of a value.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "codecs/fastsgd/fastsgd_decode_avx2.h"
#include "codecs/fastsgd/fastsgd_decode_ops.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kTogether = 64;
constexpr unsigned kMostBits = 8;        // of a number
constexpr std::uint32_t kInPlane = 128;  // values: of numbers with 8 bits the highest is the sign
constexpr std::uint32_t kFloats = 16;    // in a vector

struct Planes {
  __m512i low[4];
  __m512i high[4];

  explicit Planes(const ValueStream& values) noexcept {
    for (unsigned i = 0; i < 4; ++i) {
      low[i] = _mm512_load_si512(values.tables->planes[i]);
      high[i] = _mm512_load_si512(values.tables->planes[i] + kTogether);
    }
  }
};

// Takes 64 numbers of a width out of as many times 8 bytes.
struct Cutter {
  __m512i places;  // each eight bytes have eight numbers
  __m512i shifts;
  __m512i bits;

  explicit Cutter(unsigned width) noexcept {
    const __m512i eights = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const long long step = width;
    const long long first = step * 0x0101010101010101;
    places = _mm512_add_epi8(_mm512_mullo_epi64(eights, _mm512_set1_epi64(first)),
                             _mm512_set1_epi64(0x0706050403020100));
    shifts = _mm512_set1_epi64(step * 0x0706050403020100);
    bits = _mm512_set1_epi8(static_cast<char>((1U << width) - 1));
  }

  __m512i operator()(__m512i bytes) const noexcept {
    const __m512i placed = _mm512_permutexvar_epi8(places, bytes);
    return _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, placed), bits);
  }
};

// Stores the values of 64 numbers.
void store_values(const Planes& planes, __m512i numbers, float* out) noexcept {
  // Bytes of values come together in lanes of 16, which then lie behind each other.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i number = _mm512_permutexvar_epi32(order, numbers);
  __m512i bytes[4];
  for (unsigned i = 0; i < 4; ++i) bytes[i] = _mm512_permutex2var_epi8(planes.low[i], number, planes.high[i]);
  // The sign of 8 bits: bytes[3] ^ (number & 0x80).
  bytes[3] = _mm512_ternarylogic_epi32(bytes[3], number, _mm512_set1_epi8(static_cast<char>(0x80)), 0x78);
  const __m512i low[2] = {_mm512_unpacklo_epi8(bytes[0], bytes[1]), _mm512_unpackhi_epi8(bytes[0], bytes[1])};
  const __m512i high[2] = {_mm512_unpacklo_epi8(bytes[2], bytes[3]),
                           _mm512_unpackhi_epi8(bytes[2], bytes[3])};
  for (unsigned i = 0; i < 2; ++i) {
    _mm512_storeu_si512(out + 2 * i * kFloats, _mm512_unpacklo_epi16(low[i], high[i]));
    _mm512_storeu_si512(out + (2 * i + 1) * kFloats, _mm512_unpackhi_epi16(low[i], high[i]));
  }
}

std::uint64_t first_bits(std::uint64_t count) noexcept {
  return _bzhi_u64(~std::uint64_t{0}, static_cast<unsigned>(count < 64 ? count : 64));
}

}  // namespace

void open_values(ValueStream& values, const DecodeRules& rules, const Head& head, float scale) {
  fill_values(values, rules, head, scale);
  const unsigned width = head.code_bits + 1;
  if (width > kMostBits) return;
  const std::uint32_t numbers = width < kMostBits ? 1U << width : kInPlane;
  for (std::uint32_t number = 0; number < numbers; ++number) {
    const auto bits = bit_cast<std::uint32_t>(values.tables->of_number[number]);
    for (unsigned i = 0; i < 4; ++i)
      values.tables->planes[i][number] = static_cast<std::uint8_t>(bits >> 8 * i);
  }
}

void read_values(ValueStream& values, std::uint32_t count, float* out) {
  const unsigned width = values.code_bits + 1;
  if (width > kMostBits) return read_one_by_one(values, count, out);
  const Planes planes(values);
  const Cutter cut(width);
  const __m512i code_bits = _mm512_set1_epi8(static_cast<char>((1U << values.code_bits) - 1));
  __m512i lowest = code_bits;
  __m512i highest = _mm512_setzero_si512();
  for (std::uint32_t i = 0; i < count; i += kTogether) {
    const std::uint64_t first = values.stream.position / 8 + std::uint64_t{i} * width / 8;
    const std::uint64_t left = first < values.stream.bytes ? values.stream.bytes - first : 0;
    const std::uint64_t bytes = left < 8 * width ? left : 8 * width;
    const __m512i numbers = cut(_mm512_maskz_loadu_epi8(first_bits(bytes), values.stream.at + first));
    const __m512i codes = _mm512_and_si512(numbers, code_bits);
    const __mmask64 lanes = first_bits(count - i);
    lowest = _mm512_mask_min_epu8(lowest, lanes, lowest, codes);
    highest = _mm512_mask_max_epu8(highest, lanes, highest, codes);
    store_values(planes, numbers, out + i);
  }
  values.stream.position += std::uint64_t{count} * width;
  alignas(64) std::uint8_t of_lanes[2][kTogether];
  _mm512_store_si512(of_lanes[0], lowest);
  _mm512_store_si512(of_lanes[1], highest);
  for (unsigned i = 0; i < kTogether; ++i) {
    values.lowest = of_lanes[0][i] < values.lowest ? of_lanes[0][i] : values.lowest;
    values.highest = of_lanes[1][i] > values.highest ? of_lanes[1][i] : values.highest;
  }
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
