// Kernels for AVX-512 (F, BW, DQ, VL), compiled again for VBMI.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_avx2.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/fastsgd/fastsgd_vectors_ops.h"
#include "codecs/kernels/logarithm.h"
#include "codecs/kernels/prefetch.h"
#include "codecs/kernels/set_bits.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Which values are sent.
namespace {

constexpr std::uint32_t kLanes = 16;
static_assert(kGroup == 4 * kLanes);

__m512i lane_numbers() noexcept {
  return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// Whether every value of a row is sent.
bool are_all_sent(const float* values, std::uint32_t count, std::uint32_t cut) noexcept {
  const __m512i least = _mm512_set1_epi32(static_cast<int>(cut));
  for (std::uint32_t i = 0; i < count; i += kGroup) {
    std::uint32_t dropped = 0;
    for (std::uint32_t j = i; j < i + kGroup && j < count; j += kLanes) {
      const std::uint32_t left = count - j;
      const auto lanes = static_cast<__mmask16>(left < kLanes ? (1U << left) - 1 : 0xFFFF);
      const __m512i bits = _mm512_castps_si512(_mm512_maskz_loadu_ps(lanes, values + j));
      const __m512i magnitudes = _mm512_and_si512(bits, _mm512_set1_epi32(kMagnitudeMask));
      dropped |= _mm512_mask_cmplt_epu32_mask(lanes, magnitudes, least);
    }
    if (dropped != 0) return false;
  }
  return true;
}

template <bool kResidual, bool kKeys>
struct Collector {
  const PairInput input;  // copies, which no store can alias
  const Staging staging;
  __m512i cut;
  std::uint32_t pairs = 0;

  // The bits of x, which is left where there is a residual, and which of them are sent.
  __m512i look_at(std::uint64_t at, __mmask16 lanes, __mmask16& chosen) const noexcept {
    __m512 x = _mm512_maskz_loadu_ps(lanes, input.in + at);
    if constexpr (kResidual) {
      x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(lanes, input.residual + at));
      _mm512_mask_storeu_ps(input.left + at, lanes, x);
    }
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i magnitudes = _mm512_and_si512(bits, _mm512_set1_epi32(kMagnitudeMask));
    chosen = _mm512_mask_cmpge_epu32_mask(lanes, magnitudes, cut);
    return bits;
  }

  void take(std::uint64_t at, __m512i bits, __mmask16 lanes, __mmask16 chosen) noexcept {
    __m512i keys = _mm512_add_epi32(lane_numbers(), _mm512_set1_epi32(static_cast<int>(at)));
    if constexpr (kKeys) keys = _mm512_maskz_loadu_epi32(lanes, input.keys + at);
    _mm512_storeu_si512(staging.keys + pairs, _mm512_maskz_compress_epi32(chosen, keys));
    _mm512_storeu_si512(staging.values + pairs, _mm512_maskz_compress_epi32(chosen, bits));
    pairs += popcount(chosen);
  }

  void take_few(std::uint64_t at, std::uint64_t chosen) noexcept {
    const std::uint32_t end = pairs + set_bits(chosen, 0, staging.keys + pairs);
    for (; pairs < end; ++pairs) {
      const std::uint64_t place = at + staging.keys[pairs];
      const float x = kResidual ? input.left[place] : input.in[place];
      staging.values[pairs] = x;
      staging.keys[pairs] = kKeys ? input.keys[place] : static_cast<std::uint32_t>(place);
    }
  }

  void group(std::uint64_t at) noexcept {
    __m512i bits[4];
    __mmask16 chosen[4];
    std::uint64_t all = 0;
    for (unsigned i = 0; i < 4; ++i) {
      bits[i] = look_at(at + i * kLanes, 0xFFFF, chosen[i]);
      all |= std::uint64_t{chosen[i]} << i * kLanes;
    }
    if (all == 0) return;
    if (popcount(all) <= kFew) return take_few(at, all);
    for (unsigned i = 0; i < 4; ++i) take(at + i * kLanes, bits[i], 0xFFFF, chosen[i]);
  }

  void rest(std::uint64_t at, std::uint32_t count) noexcept {
    const auto lanes = static_cast<__mmask16>((1U << count) - 1);
    __mmask16 chosen = 0;
    const __m512i bits = look_at(at, lanes, chosen);
    take(at, bits, lanes, chosen);
  }
};

template <bool kResidual, bool kKeys>
Collected collect_chunk(const PairInput& input, std::uint64_t& at, std::uint32_t cut,
                        const Staging& staging) noexcept {
  Collector<kResidual, kKeys> collector{input, staging, _mm512_set1_epi32(static_cast<int>(cut))};
  while (input.count - at >= kGroup && collector.pairs + kGroup <= kChunkPairs) {
    collector.group(at);
    at += kGroup;
  }
  while (at < input.count && collector.pairs < kChunkPairs) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t room = kChunkPairs - collector.pairs;
    std::uint32_t count = left < kLanes ? static_cast<std::uint32_t>(left) : kLanes;
    count = room < count ? room : count;
    collector.rest(at, count);
    at += count;
  }
  return {staging.keys, staging.values, collector.pairs, at};
}

}  // namespace

Collected collect(const PairInput& input, std::uint64_t& at, std::uint32_t cut, const Staging& staging) {
  if (input.keys != nullptr) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t row = left < kChunkPairs ? static_cast<std::uint32_t>(left) : kChunkPairs;
    if (!are_all_sent(input.in + at, row, cut)) return collect_chunk<false, true>(input, at, cut, staging);
    const Collected all{input.keys + at, input.in + at, row, at + row};
    at += row;
    return all;
  }
  return input.residual != nullptr ? collect_chunk<true, false>(input, at, cut, staging)
                                   : collect_chunk<false, false>(input, at, cut, staging);
}

// A code is a logarithm, rounded up. A polynomial is exact enough for all values but the few close to a
// threshold, which are compared with it.
namespace {

// How far a code may be off, in octaves of x and in codes. The logarithms of x, of the sum and of the last
// value, and with it the scale, are off by 7e-6 each, their exponents apart, and the octaves between sum and
// last value by 8e-6 more; the scale has a rounding of 6e-8, of up to 2,047 codes, and so has the code.
constexpr float kDoubtfulPart = 4.5e-5F;
constexpr float kDoubtfulWhole = 2.5e-4F;

__m512 exponent_of(__m512 magnitude) noexcept {
  return _mm512_getexp_ps(magnitude);
}

// A polynomial of the second degree in the mantissa for each 16th of its range.
struct Pieces {
  __m512 square = _mm512_loadu_ps(kLogarithmSquare);
  __m512 slope = _mm512_loadu_ps(kLogarithmSlope);
  __m512 start = _mm512_loadu_ps(kLogarithmStart);

  __m512 of_mantissa(__m512 magnitude) const noexcept {
    const __m512i piece = _mm512_srli_epi32(_mm512_castps_si512(magnitude), 19);  // its lowest 4 bits
    const __m512 m = _mm512_getmant_ps(magnitude, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
    const __m512 steep =
        _mm512_fmadd_ps(_mm512_permutexvar_ps(piece, square), m, _mm512_permutexvar_ps(piece, slope));
    return _mm512_fmadd_ps(steep, m, _mm512_permutexvar_ps(piece, start));
  }
};

__m512 value_of(std::uint32_t bits) noexcept {
  return _mm512_set1_ps(bit_cast<float>(bits));
}

struct Quantizer {
  const Codebook& book;
  Pieces codes;  // below the code of the sum, which has the same exponent; as many too few as may be doubtful
  __m512 exponent_of_sum;
  __m512 per_octave;
  __m512 doubtful;  // codes

  explicit Quantizer(const Codebook& codebook) noexcept : book(codebook) {
    const __m512 sum = value_of(book.values[0]);
    const __m512 least = value_of(book.values[book.last]);
    exponent_of_sum = exponent_of(sum);
    const __m512 part_of_sum = codes.of_mantissa(sum);
    const __m512 octaves = _mm512_add_ps(_mm512_sub_ps(exponent_of_sum, exponent_of(least)),
                                         _mm512_sub_ps(part_of_sum, codes.of_mantissa(least)));
    const __m512 all = _mm512_set1_ps(static_cast<float>(book.last));
    per_octave = book.last > 0 ? _mm512_div_ps(all, octaves) : _mm512_setzero_ps();
    const __m512 off =
        _mm512_fmadd_ps(per_octave, _mm512_set1_ps(kDoubtfulPart), _mm512_set1_ps(kDoubtfulWhole));
    doubtful = _mm512_add_ps(off, off);
    codes.square = _mm512_fnmadd_ps(codes.square, per_octave, _mm512_setzero_ps());
    codes.slope = _mm512_fnmadd_ps(codes.slope, per_octave, _mm512_setzero_ps());
    codes.start = _mm512_sub_ps(_mm512_mul_ps(_mm512_sub_ps(part_of_sum, codes.start), per_octave), off);
  }

  __m512i codes_of(__m512 magnitudes, __mmask16 lanes) const noexcept {
    const __m512 octaves = _mm512_sub_ps(exponent_of_sum, exponent_of(magnitudes));
    const __m512 least = _mm512_fmadd_ps(octaves, per_octave, codes.of_mantissa(magnitudes));
    constexpr int kUp = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC;
    const __m512i low = _mm512_cvt_roundps_epi32(least, kUp);
    const __m512i high = _mm512_cvt_roundps_epi32(_mm512_add_ps(least, doubtful), kUp);
    const __mmask16 asked = _mm512_mask_cmpneq_epi32_mask(lanes, low, high);
    if (asked == 0) return low;
    const __m512i last = _mm512_set1_epi32(static_cast<int>(book.last));
    const __m512i tried = _mm512_min_epu32(low, last);
    const __m512i value = _mm512_mask_i32gather_epi32(last, asked, tried, book.values, 4);
    const __mmask16 below = _mm512_mask_cmplt_epu32_mask(asked, _mm512_castps_si512(magnitudes), value);
    return _mm512_mask_add_epi32(_mm512_mask_mov_epi32(low, asked, tried), below, tried,
                                 _mm512_set1_epi32(1));
  }
};

}  // namespace

CodeRange quantize(const PairInput& input, const Codebook& book, const Collected& pairs,
                   std::uint16_t* codes_of_pairs) {
  if (book.values[book.last] < kSmallestNormal) {
    return kernels_for(TargetId::kReference).quantize(input, book, pairs, codes_of_pairs);
  }
  const Quantizer quantizer(book);
  __m512i lowest = _mm512_set1_epi32(kMaxCode);
  __m512i highest = _mm512_setzero_si512();
  const auto sixteen = [&](std::uint32_t i, __mmask16 lanes) {
    const __m512i bits = _mm512_castps_si512(_mm512_maskz_loadu_ps(lanes, pairs.values + i));
    const __m512i magnitudes = _mm512_and_si512(bits, _mm512_set1_epi32(kMagnitudeMask));
    const __m512i codes = quantizer.codes_of(_mm512_castsi512_ps(magnitudes), lanes);
    lowest = _mm512_mask_min_epi32(lowest, lanes, lowest, codes);
    highest = _mm512_mask_max_epi32(highest, lanes, highest, codes);
    // codes | (bits >> 16 & kSignBit)
    const __m512i sign = _mm512_set1_epi32(fastsgd::kSignBit);
    const __m512i numbers = _mm512_ternarylogic_epi32(codes, _mm512_srli_epi32(bits, 16), sign, 0xF8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes_of_pairs + i), _mm512_cvtepi32_epi16(numbers));
  };
  const std::uint64_t ahead = input.keys != nullptr ? input.count - pairs.next : 0;
  std::uint32_t i = 0;
  for (; i + kLanes <= pairs.pairs; i += kLanes) {
    sixteen(i, 0xFFFF);
    if (i >= ahead) continue;
    // Fetch the next chunk's pairs while this one's are coded.
    prefetch_far(input.in + pairs.next + i);
    prefetch_far(input.keys + pairs.next + i);
  }
  if (i < pairs.pairs) sixteen(i, static_cast<__mmask16>((1U << (pairs.pairs - i)) - 1));
  if (input.left != nullptr) subtract(input, book, pairs, codes_of_pairs, 0, pairs.pairs);
  return {static_cast<std::uint32_t>(_mm512_reduce_min_epi32(lowest)),
          static_cast<std::uint32_t>(_mm512_reduce_max_epi32(highest))};
}

// Values of numbers.
#ifndef __AVX512VBMI2__

void open_values(ValueStream& values, const DecodeRules& rules, const Head& head, float scale) {
  fill_values(values, rules, head, scale);
}

void read_values(ValueStream& values, std::uint32_t count, float* out) {
  read_one_by_one(values, count, out);
}

#else

// Numbers of up to 8 bits are looked up 64 at a time in tables that lie in registers, one for each byte of a
// value.
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

// Cuts 64 numbers of one width, at most 8 bits, out of 64 bytes.
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
  // Interleaving the bytes of values works in lanes of 16, so the lanes are put in order first.
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

#endif  // __AVX512VBMI2__

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
