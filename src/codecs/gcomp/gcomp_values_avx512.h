// Of decoders for AVX-512: signs and mantissas, and how values are handed over. What includes this has
// included the words that fit its target.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_stream_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

template <Deliver kDeliver>
[[gnu::always_inline]] inline void deliver(__m512i bits, __mmask16 present, __m512 scale,
                                           float* slot) noexcept {
  if constexpr (kDeliver == Deliver::kOverwrite) {
    _mm512_mask_storeu_epi32(slot, present, bits);
  } else if constexpr (kDeliver == Deliver::kStream) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(slot), bits);
  } else {
    const __mmask16 some = _mm512_test_epi32_mask(bits, bits) & present;
    const __m512 value = _mm512_maskz_mul_ps(some, scale, _mm512_castsi512_ps(bits));
    if constexpr (kDeliver == Deliver::kScale) {
      _mm512_mask_storeu_ps(slot, present, value);
    } else {
      const __m512 before = _mm512_maskz_loadu_ps(present, slot);
      _mm512_mask_storeu_ps(slot, present, _mm512_mask_add_ps(before, some, before, value));
    }
  }
}

// Lanes of mantissas, cleared of what was read.
struct Mantissas {
  __m512i lanes;
  __m512i filled;
};

// False if a lane has no end bit. Where nothing is cut there are none.
inline bool open_mantissas(const std::byte* states, bool whole, Mantissas& mantissas) noexcept {
  alignas(64) std::uint32_t lanes[kMaxMantissaLanes] = {};
  alignas(64) std::uint32_t filled[kMaxMantissaLanes] = {};
  for (unsigned lane = 0; !whole && lane < kMaxMantissaLanes; ++lane) {
    const auto state = load_le<std::uint32_t>(states + lane * kStateBytes);
    if (state == 0) return false;
    filled[lane] = bit_width(state) - 1;
    lanes[lane] = state ^ 1U << filled[lane];
  }
  mantissas = {_mm512_load_si512(lanes), _mm512_load_si512(filled)};
  return true;
}

// The next sixteen numbers of `width` bits, in the upper bits.
[[gnu::always_inline]] inline __m512i read_mantissas(__m512i width, Mantissas& from,
                                                     const std::byte*& at) noexcept {
  const __m512i word_bits = _mm512_set1_epi32(kMantissaWordBits);
  const __m512i filled = from.filled;
  const __mmask16 needs = _mm512_cmplt_epu32_mask(filled, width);
  at -= popcount(needs) * kMantissaWordBytes;
  const __m512i words = _mm512_maskz_expand_epi32(needs, _mm512_loadu_si512(at));
  const __m512i all = _mm512_or_si512(from.lanes, _mm512_sllv_epi32(words, filled));
  from.lanes = _mm512_mask_srlv_epi32(_mm512_srlv_epi32(from.lanes, width), needs, words,
                                      _mm512_sub_epi32(width, filled));
  from.filled = _mm512_and_si512(_mm512_sub_epi32(filled, width), _mm512_set1_epi32(kMantissaWordBits - 1));
  return _mm512_sllv_epi32(all, _mm512_sub_epi32(word_bits, width));
}

// The same where all that isn't zero has 3 bytes.
[[gnu::always_inline]] inline __m512i take_mantissas(__mmask16 some, const std::byte*& at) noexcept {
  at -= popcount(some) * kSignMantissaBytes;
  return _mm512_maskz_expand_epi32(some, three_bytes_to_upper(_mm512_loadu_si512(at)));
}

// The float of an exponent, in its place, and of sign and mantissa in the upper 24 bits.
[[gnu::always_inline]] inline __m512i assembled(__m512i exponent, __m512i upper) noexcept {
  // The mantissa below the exponent, and then the sign above both.
  const __m512i magnitude = _mm512_ternarylogic_epi32(_mm512_set1_epi32(static_cast<int>(kMantissaMask)),
                                                      _mm512_srli_epi32(upper, 8), exponent, 0xCA);
  return _mm512_ternarylogic_epi32(magnitude, upper, _mm512_set1_epi32(static_cast<int>(kSignBit)), 0xF8);
}

}  // namespace

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
