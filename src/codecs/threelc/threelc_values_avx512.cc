// Values of digits, 16 at a time.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_unpack_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 16;

// What values become, on their way to a slot.
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

// Full rows of packed bytes. Returns the largest of them.
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

}  // namespace

std::uint32_t unpack_rows(const std::byte* packed, std::uint32_t rows, const DecodeTarget& target) {
  switch (into_of(target)) {
    case Into::kPastCaches: return unpack_into<Into::kPastCaches>(packed, rows, target);
    case Into::kSum: return unpack_into<Into::kSum>(packed, rows, target);
    default: return unpack_into<Into::kSlot>(packed, rows, target);
  }
}

void put_digits(const DigitMaps& maps, const DecodeTarget& target) {
  switch (into_of(target)) {
    case Into::kPastCaches: return put_maps<Into::kPastCaches>(maps, target);
    case Into::kSum: return put_maps<Into::kSum>(maps, target);
    default: return put_maps<Into::kSlot>(maps, target);
  }
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
