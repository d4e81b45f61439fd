// Kernels for AVX-512 (F, BW, DQ, VL), 16 values or 64 bytes at a time.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/threelc/threelc_avx2.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_rice_ops.h"
#include "codecs/threelc/threelc_vectors_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

// Quantization.
namespace {

constexpr std::uint32_t kLanes = 16;

// Which of 64 values become +1, and which -1.
struct Digits {
  __mmask64 above;
  __mmask64 below;
};

__mmask64 joined(const __mmask16 (&quarters)[4]) noexcept {
  return _mm512_kunpackd(_mm512_kunpackw(quarters[3], quarters[2]),
                         _mm512_kunpackw(quarters[1], quarters[0]));
}

// 64 values: their digits, and their new residual.
template <bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline Digits quantize_fifth(const QuantizeInput& row, std::uint32_t at) noexcept {
  const __m512 m = _mm512_set1_ps(row.scale.m);
  const __m512 high = _mm512_set1_ps(row.scale.half);
  const __m512 low = _mm512_set1_ps(-row.scale.half);
  __mmask16 above[4];
  __mmask16 below[4];
  for (unsigned i = 0; i < 4; ++i, at += kLanes) {
    __m512 x = _mm512_loadu_ps(row.in + at);
    if (kAdds) x = _mm512_add_ps(x, _mm512_loadu_ps(row.residual + at));
    above[i] = _mm512_cmp_ps_mask(x, high, _CMP_GE_OQ);
    below[i] = _mm512_cmp_ps_mask(x, low, _CMP_LE_OQ);
    if (!kKeeps) continue;
    x = _mm512_mask_sub_ps(x, above[i], x, m);
    _mm512_storeu_ps(row.left + at, _mm512_mask_add_ps(x, below[i], x, m));
  }
  return {joined(above), joined(below)};
}

struct Row {
  template <bool kAdds, bool kKeeps>
  [[gnu::always_inline]] static std::uint64_t quantize(const QuantizeInput& row, std::byte* packed,
                                                       RowDigits& digits) noexcept {
    const __m512i one = _mm512_set1_epi8(1);
    __m512i bytes = _mm512_setzero_si512();
    for (std::uint32_t p = 0; p < kDigitsPerByte; ++p) {
      const Digits fifth = quantize_fifth<kAdds, kKeeps>(row, p * kRowBytes);
      bytes = _mm512_add_epi8(_mm512_add_epi8(bytes, bytes), _mm512_add_epi8(bytes, one));
      bytes = _mm512_mask_add_epi8(bytes, fifth.above, bytes, one);
      bytes = _mm512_mask_sub_epi8(bytes, fifth.below, bytes, one);
      digits.positive[p] = fifth.above;
      digits.negative[p] = fifth.below;
    }
    _mm512_storeu_si512(packed, bytes);
    return _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(static_cast<char>(kZeroByte)));
  }
};

}  // namespace

Quantized quantize(const QuantizeInput& input, std::byte* packed, const DigitMaps& maps) {
  return quantize_by<Row>(input, packed, maps);
}

// 16 elements at a time.
void find_places(const DigitMaps& maps, std::uint32_t begin, std::uint32_t end, Places& places) {
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i step = _mm512_set1_epi32(2 * kLanes);
  __m512i here =
      _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(2 * begin)),
                       _mm512_setr_epi32(2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32));
  std::uint32_t* to = places.at + 1;
  for (std::uint32_t at = begin; at < end; at += kLanes) {
    const __mmask16 nonzero = load_le<std::uint16_t>(maps.nonzero + at / 8);
    const __mmask16 negative = load_le<std::uint16_t>(maps.negative + at / 8);
    const __m512i with_sign = _mm512_mask_add_epi32(here, negative, here, one);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(nonzero, with_sign));
    to += popcount(nonzero);
    here = _mm512_add_epi32(here, step);
  }
  places.count = static_cast<std::uint32_t>(to - (places.at + 1));
}

// Values of digits.
namespace {

// The values of digits.
struct Output {
  explicit Output(float value) noexcept
      : plus(_mm512_set1_ps(value)),
        minus(_mm512_set1_ps(-value)),
        of_digit(_mm512_setr_ps(-value, 0, value, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)) {}

  __m512 plus;
  __m512 minus;
  __m512 of_digit;
};

// `nonzero`: which digits aren't 0; the others leave a sum's bits as they are.
template <Into kInto>
[[gnu::always_inline]] inline void put(float* slot, __m512 values, __mmask16 nonzero) noexcept {
  if (kInto == Into::kSum) {
    const __m512 before = _mm512_loadu_ps(slot);
    _mm512_storeu_ps(slot, _mm512_mask_add_ps(before, nonzero, before, values));
  } else if (kInto == Into::kPastCaches) {
    _mm512_stream_ps(slot, values);
  } else {
    _mm512_storeu_ps(slot, values);
  }
}

// 32 bytes of a row as 16-bit numbers: in each 32-bit lane one of the first 16, and above it one of the last.
[[gnu::always_inline]] inline __m512i load_pairs(const std::byte* packed) noexcept {
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(packed));
  const __m128i last = _mm_loadu_si128(reinterpret_cast<const __m128i*>(packed + kLanes));
  return _mm512_or_si512(_mm512_cvtepu8_epi32(first), _mm512_slli_epi32(_mm512_cvtepu8_epi32(last), 16));
}

// A byte times 270, as a fraction of 2^16, is just above a number of five digits behind the point in base 3:
// times 3, the next digit stands before the point.
template <Into kInto>
[[gnu::always_inline]] inline void unpack_half(const std::byte* packed, const Output& output,
                                               float* slot) noexcept {
  const __m512i three = _mm512_set1_epi16(3);
  const __m512i one = _mm512_set1_epi16(1);
  __m512i fraction = _mm512_mullo_epi16(load_pairs(packed), _mm512_set1_epi16(270));
  for (std::uint32_t p = 0; p < kDigitsPerByte; ++p, slot += kRowBytes) {
    const __m512i digits = _mm512_mulhi_epu16(fraction, three);
    fraction = _mm512_mullo_epi16(fraction, three);
    const __m512i q = _mm512_xor_si512(digits, one);
    // A permutation looks at the lowest four bits of a lane alone.
    put<kInto>(slot, _mm512_permutexvar_ps(digits, output.of_digit),
               _mm512_test_epi32_mask(q, _mm512_set1_epi32(0x0000FFFF)));
    put<kInto>(slot + kLanes, _mm512_permutexvar_ps(_mm512_srli_epi32(digits, 16), output.of_digit),
               _mm512_test_epi32_mask(q, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
  }
}

// Unpacks full rows. Returns the largest packed byte.
template <Into kInto>
std::uint32_t unpack_into(const std::byte* packed, std::uint32_t rows, const DecodeTarget& target) noexcept {
  const Output output(target.value);
  __m512i largest = _mm512_setzero_si512();
  float* slot = target.slot;
  for (std::uint32_t row = 0; row < rows; ++row, packed += kRowBytes, slot += kRowElements) {
    const __m512i bytes = _mm512_loadu_si512(packed);
    largest = _mm512_max_epu8(largest, bytes);
    if (kInto == Into::kSum) {
      const std::uint64_t nonzero =
          _mm512_cmpneq_epi8_mask(bytes, _mm512_set1_epi8(static_cast<char>(kZeroByte)));
      if (popcount(nonzero) <= kFewBytes) {
        add_bytes(packed, nonzero, target.value, slot);
        continue;
      }
    }
    unpack_half<kInto>(packed, output, slot);
    unpack_half<kInto>(packed + kRowBytes / 2, output, slot + kRowBytes / 2);
  }
  if (kInto == Into::kPastCaches) _mm_sfence();
  alignas(64) std::uint8_t lanes[64];
  _mm512_store_si512(lanes, largest);
  std::uint32_t most = 0;
  for (const std::uint8_t lane : lanes) most = lane > most ? lane : most;
  return most;
}

// The values of maps of target.count digits.
template <Into kInto>
void put_maps(const DigitMaps& maps, const DecodeTarget& target) noexcept {
  const Output output(target.value);
  std::uint32_t at = 0;
  for (; at + kLanes <= target.count; at += kLanes) {
    const __mmask16 nonzero = load_le<std::uint16_t>(maps.nonzero + at / 8);
    const __mmask16 negative = load_le<std::uint16_t>(maps.negative + at / 8);
    if (kInto == Into::kSum && nonzero == 0) continue;
    const __m512 values =
        _mm512_mask_mov_ps(_mm512_maskz_mov_ps(nonzero, output.plus), negative, output.minus);
    put<kInto>(target.slot + at, values, nonzero);
  }
  if (kInto == Into::kPastCaches) _mm_sfence();
  if (at == target.count) return;
  const auto rest = static_cast<__mmask16>((1U << (target.count - at)) - 1);
  const __mmask16 nonzero = load_le<std::uint16_t>(maps.nonzero + at / 8) & rest;
  const __mmask16 negative = load_le<std::uint16_t>(maps.negative + at / 8) & rest;
  const __m512 values = _mm512_mask_mov_ps(_mm512_maskz_mov_ps(nonzero, output.plus), negative, output.minus);
  const __m512 before = _mm512_maskz_loadu_ps(rest, target.slot + at);
  _mm512_mask_storeu_ps(target.slot + at, rest,
                        kInto == Into::kSum ? _mm512_mask_add_ps(before, nonzero, before, values) : values);
}

template <Into kInto>
void put_bytes(const std::uint8_t* digits, const DecodeTarget& target) noexcept {
  const float value = target.value;
  const __m512 of_digit = _mm512_setr_ps(0, value, -value, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  std::uint32_t at = 0;
  for (; at + kLanes <= target.count; at += kLanes) {
    const __m512i sixteen =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(digits + at)));
    put<kInto>(target.slot + at, _mm512_permutexvar_ps(sixteen, of_digit),
               _mm512_test_epi32_mask(sixteen, sixteen));
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

// Expansion of zero runs.
namespace {

struct Block64 {
  static constexpr std::uint32_t kBytes = 64;

  static Block64 load(const std::byte* from) noexcept { return {_mm512_loadu_si512(from)}; }
  static Block64 all(std::byte byte) noexcept { return {_mm512_set1_epi8(static_cast<char>(byte))}; }

  void store(std::byte* to) const noexcept { _mm512_storeu_si512(to, bytes); }
  std::uint64_t equal(std::byte byte) const noexcept {
    return _mm512_cmpeq_epi8_mask(bytes, all(byte).bytes);
  }
  std::uint64_t at_least(std::byte byte) const noexcept {
    return _mm512_cmpge_epu8_mask(bytes, all(byte).bytes);
  }

  __m512i bytes;
};

}  // namespace

bool expand_runs(const ChunkBytes& codes, std::byte* packed, std::uint32_t bytes) {
  return expand_by<Block64>(codes, packed, bytes);
}

std::uint32_t zero_runs(const std::byte* packed, std::uint32_t bytes, std::byte* out) {
  return zero_runs_by<Block32>(packed, bytes, out);
}

extern constexpr Kernels kKernels = {quantize, zero_runs, rice, decode_chunk};

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
