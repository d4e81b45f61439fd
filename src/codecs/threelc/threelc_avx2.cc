// Kernels for AVX2: 8 values, or 32 bytes, at a time.
#include "codecs/threelc/threelc_avx2.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

// Quantization.
namespace {

constexpr std::uint32_t kLanes = 8;

// Eight values: -1, 0 or +1 in each 32-bit lane; their new residual is stored.
template <bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline __m256i quantize_eight(const QuantizeInput& row, std::uint32_t at) noexcept {
  const __m256 m = _mm256_set1_ps(row.scale.m);
  __m256 x = _mm256_loadu_ps(row.in + at);
  if (kAdds) x = _mm256_add_ps(x, _mm256_loadu_ps(row.residual + at));
  const __m256 above = _mm256_cmp_ps(x, _mm256_set1_ps(row.scale.half), _CMP_GE_OQ);
  const __m256 below = _mm256_cmp_ps(x, _mm256_set1_ps(-row.scale.half), _CMP_LE_OQ);
  if (kKeeps) {  // x - 0 is x, and so is x + -0: bit for bit
    const __m256 taken = _mm256_sub_ps(x, _mm256_and_ps(above, m));
    const __m256 given = _mm256_blendv_ps(_mm256_set1_ps(-0.0F), m, below);
    _mm256_storeu_ps(row.left + at, _mm256_add_ps(taken, given));
  }
  return _mm256_sub_epi32(_mm256_castps_si256(below), _mm256_castps_si256(above));
}

// 32 values: -1, 0 or +1 in each byte, in their order.
template <bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline __m256i quantize_half(const QuantizeInput& row, std::uint32_t at) noexcept {
  __m256i digits[4];
  for (std::uint32_t i = 0; i < 4; ++i) {
    digits[i] = quantize_eight<kAdds, kKeeps>(row, at + i * kLanes);
  }
  // packs leaves the groups of four digits in the order 0, 2, 4, 6, 1, 3, 5, 7.
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(digits[0], digits[1]), _mm256_packs_epi32(digits[2], digits[3]));
  return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

std::uint64_t sign_bits(__m256i bytes) noexcept {
  return static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
}

struct Row {
  template <bool kAdds, bool kKeeps>
  [[gnu::always_inline]] static std::uint64_t quantize(const QuantizeInput& row, std::byte* packed,
                                                       RowDigits& digits) noexcept {
    const __m256i zero_byte = _mm256_set1_epi8(static_cast<char>(kZeroByte));
    __m256i bytes[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (std::uint32_t p = 0; p < kDigitsPerByte; ++p) {
      digits.positive[p] = 0;
      digits.negative[p] = 0;
      for (std::uint32_t half = 0; half < 2; ++half) {
        const __m256i q = quantize_half<kAdds, kKeeps>(row, p * kRowBytes + half * 32);
        bytes[half] =
            _mm256_add_epi8(_mm256_add_epi8(bytes[half], bytes[half]), _mm256_add_epi8(bytes[half], q));
        digits.positive[p] |= sign_bits(_mm256_cmpgt_epi8(q, _mm256_setzero_si256())) << (half * 32);
        digits.negative[p] |= sign_bits(q) << (half * 32);
      }
    }
    std::uint64_t zeros = 0;
    for (std::uint32_t half = 0; half < 2; ++half) {
      const __m256i sum = _mm256_add_epi8(bytes[half], zero_byte);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed + half * 32), sum);
      zeros |= sign_bits(_mm256_cmpeq_epi8(sum, zero_byte)) << (half * 32);
    }
    return zeros;
  }
};

}  // namespace

Quantized quantize(const QuantizeInput& input, std::byte* packed, const DigitMaps& maps) {
  return quantize_by<Row>(input, packed, maps);
}

std::uint32_t zero_runs(const std::byte* packed, std::uint32_t bytes, std::byte* out) {
  return zero_runs_by<Block32>(packed, bytes, out);
}

// With the bit instructions of BMI, that is fast enough word by word.
void find_places(const DigitMaps& maps, std::uint32_t begin, std::uint32_t end, Places& places) {
  find_few_places(maps, begin, end, places);
}

// Values of digits.
namespace {

// `zero`: all bits of the lanes of digits that are 0; these leave a sum's bits as they are.
template <Into kInto>
[[gnu::always_inline]] inline void put(float* slot, __m256 values, __m256i zero) noexcept {
  if (kInto == Into::kSum) {
    const __m256 before = _mm256_loadu_ps(slot);
    const __m256 sum = _mm256_add_ps(before, values);
    _mm256_storeu_ps(slot, _mm256_blendv_ps(sum, before, _mm256_castsi256_ps(zero)));
  } else if (kInto == Into::kPastCaches) {
    _mm256_stream_ps(slot, values);
  } else {
    _mm256_storeu_ps(slot, values);
  }
}

// 16 bytes of a row as 16-bit numbers: in each 32-bit lane one of the first 8, and above it one of the last.
[[gnu::always_inline]] inline __m256i load_pairs(const std::byte* packed) noexcept {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(packed));
  const __m256i last = _mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, kLanes)), 16);
  return _mm256_or_si256(_mm256_cvtepu8_epi32(bytes), last);
}

// A byte times 270, as a fraction of 2^16, is just above a number of five digits behind the point in base 3:
// times 3, the next digit stands before the point.
template <Into kInto>
[[gnu::always_inline]] inline void unpack_quarter(const std::byte* packed, __m256 of_digit,
                                                  float* slot) noexcept {
  const __m256i three = _mm256_set1_epi16(3);
  const __m256i one = _mm256_set1_epi16(1);
  const __m256i none = _mm256_setzero_si256();
  __m256i fraction = _mm256_mullo_epi16(load_pairs(packed), _mm256_set1_epi16(270));
  for (std::uint32_t p = 0; p < kDigitsPerByte; ++p, slot += kRowBytes) {
    const __m256i digits = _mm256_mulhi_epu16(fraction, three);
    fraction = _mm256_mullo_epi16(fraction, three);
    const __m256i upper = _mm256_srli_epi32(digits, 16);
    const __m256i q = _mm256_xor_si256(digits, one);
    const __m256i lower_zero = _mm256_cmpeq_epi32(_mm256_slli_epi32(q, 16), none);
    const __m256i upper_zero = _mm256_cmpeq_epi32(_mm256_srli_epi32(q, 16), none);
    // A permutation looks at the lowest three bits of a lane alone.
    put<kInto>(slot, _mm256_permutevar8x32_ps(of_digit, digits), lower_zero);
    put<kInto>(slot + kLanes, _mm256_permutevar8x32_ps(of_digit, upper), upper_zero);
  }
}

std::uint64_t nonzero_bytes(__m256i bytes) noexcept {
  const __m256i zero = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(static_cast<char>(kZeroByte)));
  return ~static_cast<std::uint32_t>(_mm256_movemask_epi8(zero));
}

template <Into kInto>
std::uint32_t unpack_into(const std::byte* packed, std::uint32_t rows, const DecodeTarget& target) noexcept {
  const float value = target.value;
  const __m256 of_digit = _mm256_setr_ps(-value, 0, value, 0, 0, 0, 0, 0);
  __m256i largest = _mm256_setzero_si256();
  float* slot = target.slot;
  for (std::uint32_t row = 0; row < rows; ++row, packed += kRowBytes, slot += kRowElements) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(packed));
    const __m256i last = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(packed + kRowBytes / 2));
    largest = _mm256_max_epu8(largest, _mm256_max_epu8(first, last));
    if (kInto == Into::kSum) {
      const std::uint64_t nonzero = nonzero_bytes(first) | nonzero_bytes(last) << 32;
      if (popcount(nonzero) <= kFewBytes) {
        add_bytes(packed, nonzero, value, slot);
        continue;
      }
    }
    for (std::uint32_t at = 0; at < kRowBytes; at += 2 * kLanes) {
      unpack_quarter<kInto>(packed + at, of_digit, slot + at);
    }
  }
  if (kInto == Into::kPastCaches) _mm_sfence();
  alignas(32) std::uint8_t lanes[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), largest);
  std::uint32_t most = 0;
  for (const std::uint8_t lane : lanes) most = lane > most ? lane : most;
  return most;
}

// All bits of the lanes whose bits are set.
__m256i spread_bits(std::byte bits) noexcept {
  const __m256i lane_bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane_bits),
                            lane_bits);
}

// The values of eight digits.
template <Into kInto>
[[gnu::always_inline]] inline void put_eight(const DigitMaps& maps, std::uint32_t at,
                                             const DecodeTarget& target) noexcept {
  const __m256 nonzero = _mm256_castsi256_ps(spread_bits(maps.nonzero[at / 8]));
  const __m256 negative = _mm256_castsi256_ps(spread_bits(maps.negative[at / 8]));
  const __m256 values = _mm256_and_ps(
      nonzero, _mm256_blendv_ps(_mm256_set1_ps(target.value), _mm256_set1_ps(-target.value), negative));
  const __m256i zero = _mm256_xor_si256(_mm256_castps_si256(nonzero), _mm256_set1_epi32(-1));
  put<kInto>(target.slot + at, values, zero);
}

template <Into kInto>
void put_maps(const DigitMaps& maps, const DecodeTarget& target) noexcept {
  std::uint32_t at = 0;
  for (; at + 4 * kLanes <= target.count; at += 4 * kLanes) {
    const bool zeros = load_le<std::uint32_t>(maps.nonzero + at / 8) == 0;
    if (kInto == Into::kSum && zeros) continue;
    for (std::uint32_t i = at; i < at + 4 * kLanes; i += kLanes) {
      if (kInto == Into::kSum && maps.nonzero[i / 8] == std::byte{0}) continue;
      if (zeros) {
        put<kInto>(target.slot + i, _mm256_setzero_ps(), _mm256_setzero_si256());
      } else {
        put_eight<kInto>(maps, i, target);
      }
    }
  }
  for (; at + kLanes <= target.count; at += kLanes) put_eight<kInto>(maps, at, target);
  if (kInto == Into::kPastCaches) _mm_sfence();
  put_last_digits(maps, at, target);
}

template <Into kInto>
void put_bytes(const std::uint8_t* digits, const DecodeTarget& target) noexcept {
  const float value = target.value;
  const __m256 of_digit = _mm256_setr_ps(0, value, -value, 0, 0, 0, 0, 0);
  std::uint32_t at = 0;
  for (; at + kLanes <= target.count; at += kLanes) {
    const __m256i eight =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(digits + at)));
    put<kInto>(target.slot + at, _mm256_permutevar8x32_ps(of_digit, eight),
               _mm256_cmpeq_epi32(eight, _mm256_setzero_si256()));
  }
  if (kInto == Into::kPastCaches) _mm_sfence();
  put_last_digits(digits, at, target);
}

}  // namespace

std::uint32_t unpack_rows(const std::byte* packed, std::uint32_t rows, const DecodeTarget& target) {
  return for_into(target, [&]<Into kInto>() { return unpack_into<kInto>(packed, rows, target); });
}

void put_digits(const DigitMaps& maps, const DecodeTarget& target) {
  for_into(target, [&]<Into kInto>() { put_maps<kInto>(maps, target); });
}

void put_digit_bytes(const std::uint8_t* digits, const DecodeTarget& target) {
  for_into(target, [&]<Into kInto>() { put_bytes<kInto>(digits, target); });
}

bool expand_runs(const ChunkBytes& codes, std::byte* packed, std::uint32_t bytes) {
  return expand_by<Block32>(codes, packed, bytes);
}

extern constexpr Kernels kKernels = {quantize, zero_runs, rice, decode_chunk};

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
