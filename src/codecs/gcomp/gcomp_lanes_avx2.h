// A block's lanes of codes and mantissas as AVX2 writes them, a stretch of 128 values at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_codes_avx2.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx2.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

constexpr Places kPlaces = make_places();
constexpr HalfPlaces kHalfPlaces = make_half_places();

// A block on its way out: as in the reference, but of a lane of codes the 16 bits that leave next, and the
// `held` bits behind them, highest first. `held` is in each byte of 16 bits.
struct Writer {
  alignas(32) std::uint16_t leaving[kMaxLanes] = {};
  alignas(32) std::uint16_t codes[kMaxLanes] = {};
  alignas(32) std::uint16_t held[kMaxLanes] = {};
  alignas(32) std::uint32_t mantissas[kMaxMantissaLanes] = {};
  alignas(32) std::uint32_t filled[kMaxMantissaLanes] = {};
  __m256i any;   // all kept bits, or-ed
  __m256i step;  // of the values' Precision
};

struct Stretch {
  alignas(32) std::uint32_t kept[kMaxStretch];
  alignas(32) std::uint8_t slots[kMaxStretch];
  alignas(32) std::uint16_t entries[kMaxStretch];
  const void* values = kept;  // what is kept
  bool dense = false;         // none is +0 or tiny
  bool last = false;          // there are fewer values
};

// The words that `leave` names, brought together.
[[gnu::always_inline]] inline __m256i gathered(__m256i words, std::uint32_t leave) noexcept {
  return _mm256_permutevar8x32_epi32(words, places_of(kPlaces.gather[leave]));
}

// Sign and mantissa in the lower 24 bits.
[[gnu::always_inline]] inline __m256i sign_mantissas(__m256i kept) noexcept {
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(kept, 8), all_words(kSignBit >> 8));
  return _mm256_or_si256(sign, _mm256_and_si256(kept, all_words(kMantissaMask)));
}

// Bits of sign and mantissa of eight values, in steps, in place.
[[gnu::always_inline]] inline __m256i steps_of(const Stretch& stretch, unsigned i) noexcept {
  const __m256i entries =
      _mm256_cvtepu16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(stretch.entries + i)));
  return _mm256_and_si256(entries, all_words(kHalfMask << kStepsShift));
}

// Eight lanes of mantissas, in registers.
struct MantissaLanes {
  __m256i x;
  __m256i filled;
  __m256i step;
};

// Values i to i + 7 of a stretch.
[[gnu::always_inline]] inline std::byte* push_mantissas(const Stretch& stretch, unsigned i,
                                                        MantissaLanes& lanes, std::byte* at) noexcept {
  const __m256i word_bits = all_words(kMantissaWordBits);
  const __m256i steps = _mm256_srli_epi32(steps_of(stretch, i), kStepsShift);
  const __m256i width = _mm256_mullo_epi16(steps, lanes.step);
  const __m256i value = _mm256_srlv_epi32(sign_mantissas(load_words(stretch.kept + i)),
                                          _mm256_sub_epi32(all_words(kSignMantissaBits), width));
  const __m256i sum = _mm256_add_epi32(lanes.filled, width);
  const __m256i rest = _mm256_and_si256(sum, all_words(kMantissaWordBits - 1));
  const __m256i older = _mm256_sllv_epi32(lanes.x, _mm256_sub_epi32(word_bits, lanes.filled));
  const __m256i words = _mm256_or_si256(older, _mm256_srlv_epi32(value, rest));
  const std::uint32_t leave = high_bits(_mm256_cmpgt_epi32(sum, all_words(kMantissaWordBits - 1)));
  store_words(at, gathered(words, leave));
  at += popcount(leave) * kMantissaWordBytes;
  lanes = {_mm256_or_si256(_mm256_sllv_epi32(lanes.x, width), value), rest, lanes.step};
  return at;
}

// The mantissas of a cut chunk's stretch.
[[gnu::always_inline]] inline std::byte* push_mantissas(const Stretch& stretch, Writer& writer,
                                                        std::byte* at) noexcept {
  MantissaLanes lanes[2];
#pragma GCC unroll 2
  for (unsigned i = 0; i < 2; ++i) {
    lanes[i] = {load_words(writer.mantissas + kVectorWords * i), load_words(writer.filled + kVectorWords * i),
                writer.step};
  }
#pragma GCC unroll 8
  for (unsigned i = 0; i < kMaxStretch; i += kMaxMantissaLanes) {
    at = push_mantissas(stretch, i, lanes[0], at);
    at = push_mantissas(stretch, i + kVectorWords, lanes[1], at);
  }
#pragma GCC unroll 2
  for (unsigned i = 0; i < 2; ++i) {
    store_words(writer.mantissas + kVectorWords * i, lanes[i].x);
    store_words(writer.filled + kVectorWords * i, lanes[i].filled);
  }
  return at;
}

// The mantissas of a whole chunk's stretch.
[[gnu::always_inline]] inline std::byte* append_mantissas(const Stretch& stretch, std::byte* at) noexcept {
  if (stretch.dense) [[likely]] {
#pragma GCC unroll 16
    for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
      const __m256i kept = load_words(static_cast<const std::byte*>(stretch.values) + i * kValueBytes);
      write_three_bytes(sign_mantissas(kept), at + i * kSignMantissaBytes);
    }
    return at + kMaxStretch * kSignMantissaBytes;
  }
#pragma GCC unroll 2
  for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
    const std::uint32_t some = high_bits(_mm256_cmpgt_epi32(steps_of(stretch, i), _mm256_setzero_si256()));
    write_three_bytes(gathered(sign_mantissas(load_words(stretch.kept + i)), some), at);
    at += popcount(some) * kSignMantissaBytes;
  }
  return at;
}

// Appends those of sixteen numbers of 16 bits that `leave` names.
[[gnu::always_inline]] inline std::byte* append_halves(__m256i leave, __m256i halves,
                                                       std::byte* at) noexcept {
  const __m128i low = _mm256_castsi256_si128(leave);
  const auto mask =
      static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_packs_epi16(low, _mm256_extracti128_si256(leave, 1))));
  const auto append = [&at](__m128i eight, std::uint32_t leaving) {
    const __m128i together = _mm_shuffle_epi8(eight, bytes_of(kHalfPlaces.gather[leaving]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), together);
    at += popcount(leaving) * kWordBytes;
  };
  append(_mm256_castsi256_si128(halves), mask & 0xFF);
  append(_mm256_extracti128_si256(halves, 1), mask >> 8);
  return at;
}

// Two codes for each lane: that of row 0, and above it that of row 1. kTail: there may be none.
template <bool kTail>
[[gnu::always_inline]] inline std::byte* push_codes(const Stretch& stretch, Writer& writer,
                                                    std::byte* at) noexcept {
  const __m256i powers = byte_table(kPowers);
  const __m256i zero = _mm256_setzero_si256();
  const __m256i length_mask = all_halves(kHalfMask);
  const __m256i left_mask = all_halves(0xFF00);
  const __m256i both_bytes = _mm256_setr_epi8(0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14,  //
                                              0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14);
#pragma GCC unroll 4
  for (unsigned lane = 0; lane < kMaxLanes; lane += kVectorHalves) {
    const __m256i first = load_words(stretch.entries + lane);
    const __m256i second = load_words(stretch.entries + kMaxLanes + lane);
    const __m256i above = _mm256_and_si256(second, length_mask);
    const __m256i length = _mm256_add_epi16(_mm256_and_si256(first, length_mask), above);
    __m256i below =
        _mm256_mullo_epi16(_mm256_srli_epi16(first, kLeftShift), _mm256_shuffle_epi8(powers, above));
    if constexpr (kTail) {
      below = _mm256_blendv_epi8(below, _mm256_and_si256(first, left_mask), _mm256_cmpeq_epi16(above, zero));
    }
    const __m256i code = _mm256_or_si256(_mm256_and_si256(second, left_mask), below);
    const __m256i held = load_words(writer.held + lane);
    // 2^(16 - held), and 0 for a lane that holds nothing: then the code stays where it is.
    const __m256i power = _mm256_shuffle_epi8(powers, _mm256_add_epi8(held, all_halves(0x00F8)));
    const __m256i stays = _mm256_and_si256(code, _mm256_cmpeq_epi16(power, zero));
    const __m256i all = _mm256_or_si256(_mm256_or_si256(load_words(writer.codes + lane), stays),
                                        _mm256_mulhi_epu16(code, power));
    const __m256i sum = _mm256_add_epi8(held, _mm256_shuffle_epi8(length, both_bytes));
    const __m256i leave = _mm256_cmpgt_epi16(sum, all_halves(0x0F0F));
    const __m256i leaving = load_words(writer.leaving + lane);
    at = append_halves(leave, leaving, at);
    store_words(writer.leaving + lane, _mm256_blendv_epi8(leaving, all, leave));
    store_words(writer.codes + lane, _mm256_blendv_epi8(all, _mm256_mullo_epi16(code, power), leave));
    store_words(writer.held + lane, _mm256_and_si256(sum, all_halves(0x0F0F)));
  }
  return at;
}

// Exponents of escaped values, in their order.
std::byte* append_escapes(const Stretch& stretch, std::uint16_t escape, std::byte* at) noexcept {
  const auto* const values = static_cast<const std::byte*>(stretch.values);
  for (unsigned i = 0; i < kMaxStretch; i += kVectorHalves) {
    const __m256i escapes = _mm256_cmpeq_epi16(load_words(stretch.entries + i), all_halves(escape));
    // Two bits for each.
    for (auto left = static_cast<std::uint32_t>(_mm256_movemask_epi8(escapes)); left != 0;) {
      const unsigned nth = countr_zero(left) / 2;
      left &= ~(3U << 2 * nth);
      const auto bits = load_le<std::uint32_t>(values + (i + nth) * kValueBytes);
      *at++ = static_cast<std::byte>((bits & kMagnitudeMask) >> kMantissaBits);
    }
  }
  return at;
}

[[gnu::always_inline]] inline bool has_escapes(const Stretch& stretch, std::uint16_t escape) noexcept {
  __m256i any = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (unsigned i = 0; i < kMaxStretch; i += kVectorHalves) {
    any = _mm256_or_si256(any, _mm256_cmpeq_epi16(load_words(stretch.entries + i), all_halves(escape)));
  }
  return _mm256_testz_si256(any, any) == 0;
}

void write_states(bool whole, const Writer& writer, std::byte* at) noexcept {
  for (unsigned lane = 0; lane < kMaxLanes; ++lane, at += kStateBytes) {
    const unsigned held = writer.held[lane] & kHalfMask;
    const std::uint32_t lower = std::uint32_t{writer.codes[lane]} >> (kWordBits - held);
    const std::uint32_t upper = (std::uint32_t{1} << kWordBits | writer.leaving[lane]) << held;
    store_le(at, upper | lower);
  }
  for (unsigned lane = 0; lane < kMaxMantissaLanes && !whole; ++lane, at += kStateBytes) {
    const std::uint32_t end = 1U << writer.filled[lane];
    store_le(at, end | (writer.mantissas[lane] & (end - 1)));
  }
}

}  // namespace

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
