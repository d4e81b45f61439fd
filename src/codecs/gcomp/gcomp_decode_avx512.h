// Decoding for AVX-512: blocks of 64 lanes. Shorter ones are left to the reference. How lanes are read is in
// the files that include this.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_decode_ops.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

// Signs and mantissas, and how values are handed over.

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

// Lanes, a target's: look_of(table), a table of codes as it is looked up; and for one of them open(states,
// whole, lanes), false if they are none; decode_stretch<kWhole, kTail, kDeliver>(table, look, lanes, count,
// at, scale, slot), which reads `count` values downwards from `at`; close(lanes), a fault if they don't end
// as they must.
template <class Lanes, bool kWhole, Deliver kDeliver>
Fault decode_lanes(const BlockBytes& body, const DecodeTable& table, const Target& target) noexcept {
  Stream stream{body.at, body.at + body.stream_bytes};
  Lanes opened;
  if (!open(stream.at, kWhole, opened)) return Fault::kLaneState;
  Lanes lanes = opened;  // whose address nobody has: it stays in registers, which values written can't change
  const auto look = Lanes::look_of(table);
  const __m512 scale = _mm512_set1_ps(target.scale);
  StreamEnd end;
  Fault fault = Fault::kNone;
  std::uint32_t begin = 0;
  for (; begin < target.count; begin += kMaxStretch) {
    const std::uint32_t count = target.count - begin;
    const std::byte* const from = readable(stream, end);
    const std::byte* at = from;
    fetch_early<kDeliver>(at, target.slot + begin);
    if (count >= kMaxStretch) [[likely]] {
      fault = decode_stretch<kWhole, false, kDeliver>(table, look, lanes, kMaxStretch, at, scale,
                                                      target.slot + begin);
    } else {
      constexpr Deliver kPlain = kDeliver == Deliver::kStream ? Deliver::kOverwrite : kDeliver;
      fault = decode_stretch<kWhole, true, kPlain>(table, look, lanes, count, at, scale, target.slot + begin);
    }
    if (!advance(stream, static_cast<std::uint32_t>(from - at))) return Fault::kTruncated;
    if (fault != Fault::kNone) return fault;
  }
  if constexpr (kDeliver == Deliver::kStream) _mm_sfence();
  return stream.at == stream.begin ? close(lanes) : Fault::kBytesLeft;
}

// `payload` may be null: zeros.
template <Deliver kDeliver>
void hand_over(const std::byte* payload, const Target& target) noexcept {
  const __m512 scale = _mm512_set1_ps(target.scale);
  const std::uint32_t full = target.count / 16 * 16;
  for (std::uint32_t i = 0; i < full; i += 16) {
    const __m512i bits =
        payload != nullptr ? _mm512_loadu_si512(payload + i * kValueBytes) : _mm512_setzero_si512();
    deliver<kDeliver>(bits, 0xFFFF, scale, target.slot + i);
  }
  if constexpr (kDeliver == Deliver::kStream) _mm_sfence();
  if (full == target.count) return;
  constexpr Deliver kPlain = kDeliver == Deliver::kStream ? Deliver::kOverwrite : kDeliver;
  const __mmask16 present = first_lanes(target.count, full);
  const __m512i bits = payload != nullptr ? _mm512_maskz_loadu_epi32(present, payload + full * kValueBytes)
                                          : _mm512_setzero_si512();
  deliver<kPlain>(bits, present, scale, target.slot + full);
}

template <class Lanes>
Fault decode_any_block(const BlockBytes& body, const DecodeTable& table, const Target& target) {
  if (lanes_for(target.count) < kMaxLanes) {
    return kernels_for(TargetId::kReference).decode_block(body, table, target);
  }
  return for_target<64>(target, [&]<Deliver kDeliver>() {
    return table.whole ? decode_lanes<Lanes, true, kDeliver>(body, table, target)
                       : decode_lanes<Lanes, false, kDeliver>(body, table, target);
  });
}

void decode_any_stored(const std::byte* payload, const Target& target) {
  for_target<64>(target, [&]<Deliver kDeliver>() { hand_over<kDeliver>(payload, target); });
}

}  // namespace

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
