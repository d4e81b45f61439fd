// Decoding for AVX2: blocks of 64 lanes. Shorter ones are left to the reference.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/gcomp/gcomp_decode_codes_avx2.h"
#include "codecs/gcomp/gcomp_decode_ops.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx2.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

constexpr Places kPlaces = make_places();

constexpr unsigned kVectors = kMaxStretch / kVectorWords;  // of values
constexpr unsigned kRowVectors = kMaxStretch / kBytesAtOnce;

// What the codes of a stretch mean, a byte for each value. Widths are those of sign and mantissa; in whole
// chunks they are 255 for values without, and else 0.
struct Stretch {
  alignas(32) std::uint8_t exponents[kMaxStretch];
  alignas(32) std::uint8_t widths[kMaxStretch];
};

// Eight bytes as words.
[[gnu::always_inline]] inline __m256i words_of(const std::uint8_t* bytes) noexcept {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
}

// Lanes of mantissas, cleared of what was read.
struct Mantissas {
  __m256i held[2];
  __m256i filled[2];
};

// The next eight numbers of `width` bits from the lower or the upper lanes, in the upper bits.
[[gnu::always_inline]] inline __m256i read_mantissas(__m256i width, unsigned half, Mantissas& lanes,
                                                     const std::byte*& at) noexcept {
  const __m256i filled = lanes.filled[half];
  const __m256i held = lanes.held[half];
  const __m256i needs = _mm256_cmpgt_epi32(width, filled);
  const std::uint32_t mask = high_bits(needs);
  at -= popcount(mask) * kMantissaWordBytes;
  const __m256i spread = _mm256_permutevar8x32_epi32(load_words(at), places_of(kPlaces.spread[mask]));
  const __m256i words = _mm256_and_si256(needs, spread);
  const __m256i x = _mm256_or_si256(held, _mm256_sllv_epi32(words, filled));
  const __m256i rest = _mm256_sub_epi32(width, filled);
  lanes.held[half] = _mm256_or_si256(_mm256_srlv_epi32(held, width), _mm256_srlv_epi32(words, rest));
  lanes.filled[half] = _mm256_and_si256(_mm256_sub_epi32(filled, width), all_words(kMantissaWordBits - 1));
  return _mm256_sllv_epi32(x, _mm256_sub_epi32(all_words(kMantissaWordBits), width));
}

// The same where all that isn't zero has 3 bytes; `some`: which.
[[gnu::always_inline]] inline __m256i take_mantissas(__m256i some, const std::byte*& at) noexcept {
  const std::uint32_t mask = high_bits(some);
  at -= popcount(mask) * kSignMantissaBytes;
  const __m256i upper = three_bytes_to_upper(at);
  return _mm256_and_si256(some, _mm256_permutevar8x32_epi32(upper, places_of(kPlaces.spread[mask])));
}

template <Deliver kDeliver>
[[gnu::always_inline]] inline void deliver(__m256i bits, __m256 scale, float* slot) noexcept {
  const __m256 value = _mm256_castsi256_ps(bits);
  if constexpr (kDeliver == Deliver::kOverwrite) {
    _mm256_storeu_ps(slot, value);
  } else if constexpr (kDeliver == Deliver::kStream) {
    _mm256_stream_ps(slot, value);
  } else {
    const __m256 zero = _mm256_castsi256_ps(_mm256_cmpeq_epi32(bits, _mm256_setzero_si256()));
    if constexpr (kDeliver == Deliver::kScale) {
      _mm256_storeu_ps(slot, _mm256_andnot_ps(zero, _mm256_mul_ps(scale, value)));
    } else {
      const __m256 before = _mm256_loadu_ps(slot);
      const __m256 sum = _mm256_add_ps(before, _mm256_mul_ps(scale, value));
      _mm256_storeu_ps(slot, _mm256_blendv_ps(sum, before, zero));
    }
  }
}

// The float of an exponent and what stands in the upper 24 bits, sign and mantissa.
[[gnu::always_inline]] inline __m256i assembled(__m256i exponent, __m256i upper) noexcept {
  const __m256i rest = _mm256_and_si256(_mm256_srai_epi32(upper, 8), all_words(kSignBit | kMantissaMask));
  return _mm256_or_si256(rest, _mm256_slli_epi32(exponent, kMantissaBits));
}

// Eight values that all have exponents and 3 bytes, those of the last one right below `at`.
[[gnu::always_inline]] inline __m256i assemble_dense(__m256i exponent, const std::byte* at) noexcept {
  const auto* const low = reinterpret_cast<const __m128i*>(at - kVectorWords * kSignMantissaBytes);
  const auto* const high = reinterpret_cast<const __m128i*>(at - kVectorWords / 2 * kSignMantissaBytes);
  const __m256i packed =
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)), _mm_loadu_si128(high), 1);
  // The highest byte twice: for the sign, and for the mantissa.
  const __m256i places = _mm256_setr_epi8(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11,  //
                                          0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
  const __m256i rest =
      _mm256_and_si256(_mm256_shuffle_epi8(packed, places), all_words(kSignBit | kMantissaMask));
  return _mm256_or_si256(rest, _mm256_slli_epi32(exponent, kMantissaBits));
}

// The rows of 32 values of a stretch.
[[gnu::always_inline]] inline __m256i rows_of(const Codes& codes, unsigned vector) noexcept {
  const Row& row = codes.rows[vector / kByteVectors];
  return _mm256_and_si256(row.entries[vector % kByteVectors], all_bytes(kRows - 1));
}

// Puts the exponents behind escapes, or the 0 of tiny values, in the places of those with the escape's row.
// Returns where they begin; sets `legal` to whether all of them may be. REQUIRES: `lanes` still have the
// stretch's codes.
const std::byte* read_escapes(const DecodeTable& table, const Lanes& lanes, const Codes& codes,
                              Stretch& stretch, const std::byte* at, bool& legal) noexcept {
  alignas(32) std::uint16_t next[kMaxLanes];
  for (unsigned i = 0; i < kHalfVectors; ++i) store_words(next + kVectorHalves * i, lanes.next[i]);
  for (unsigned vector = kRowVectors; vector-- > 0;) {
    const __m256i escapes = _mm256_cmpeq_epi8(rows_of(codes, vector), all_bytes(kEscapeSlot));
    for (auto left = static_cast<std::uint32_t>(_mm256_movemask_epi8(escapes)); left != 0;) {
      const unsigned bit = bit_width(left) - 1;
      left ^= 1U << bit;
      const unsigned place = kBytesAtOnce * vector + bit;
      const unsigned x = next[half_of(place % kMaxLanes)];
      unsigned entry = table.entry[x & 0xFF];
      if (place >= kMaxLanes) entry = table.entry[x >> (entry & kEntryLengthMask) & 0xFF];
      std::uint8_t& exponent = stretch.exponents[place];
      if (entry >> kEntryRowShift == 0) {
        exponent = 0;
        continue;
      }
      exponent = static_cast<std::uint8_t>(*--at);
      legal &= may_escape(table, exponent);
    }
  }
  return at;
}

// Writes all of a stretch whose values all have exponents and 3 bytes.
template <Deliver kDeliver>
[[gnu::always_inline]] inline void decode_dense(const Stretch& stretch, const std::byte*& at, __m256 scale,
                                                float* slot) noexcept {
#pragma GCC unroll 16
  for (int i = kVectors - 1; i >= 0; --i) {
    const auto vector = static_cast<unsigned>(i);
    const std::byte* const behind = at - (kVectors - 1 - vector) * kVectorWords * kSignMantissaBytes;
    const __m256i exponent = words_of(stretch.exponents + kVectorWords * vector);
    deliver<kDeliver>(assemble_dense(exponent, behind), scale, slot + kVectorWords * vector);
  }
  at -= kMaxStretch * kSignMantissaBytes;
}

// Writes all of a stretch. A fault for tiny values that are +0.
template <bool kWhole, Deliver kDeliver>
[[gnu::always_inline]] inline Fault decode_any(const Stretch& stretch, Mantissas& mantissas,
                                               const std::byte*& at, __m256 scale, float* slot) noexcept {
  const __m256i zero = _mm256_setzero_si256();
  __m256i wrong = zero;
#pragma GCC unroll 16
  for (int i = kVectors - 1; i >= 0; --i) {
    const auto vector = static_cast<unsigned>(i);
    const __m256i exponent = words_of(stretch.exponents + kVectorWords * vector);
    const __m256i width = words_of(stretch.widths + kVectorWords * vector);
    __m256i bits;
    if constexpr (kWhole) {
      const __m256i some = _mm256_cmpeq_epi32(width, zero);
      bits = assembled(exponent, take_mantissas(some, at));
      wrong = _mm256_or_si256(wrong, _mm256_and_si256(some, _mm256_cmpeq_epi32(bits, zero)));
    } else {
      bits = assembled(exponent, read_mantissas(width, vector % 2, mantissas, at));
    }
    deliver<kDeliver>(bits, scale, slot + kVectorWords * vector);
  }
  return _mm256_testz_si256(wrong, wrong) != 0 ? nullptr : &faults::kTinyZero;
}

template <bool kWhole>
struct Decoder {
  const DecodeTable& table;
  const CodeTable& code_table;
  Lanes& lanes;
  Codes& codes;  // of the next stretch, as if all of it were there: found while mantissas are waited for
  Mantissas& mantissas;
  __m256 scale;

  // Reads a stretch of `count` values downwards from `at`; writes all of it.
  template <bool kTail, Deliver kDeliver>
  [[gnu::always_inline]] Fault read(std::uint32_t count, const std::byte*& at, float* slot) noexcept {
    if constexpr (kTail) read_codes<kWhole, kTail>(code_table, lanes, count, codes);
    Stretch stretch;
    __m256i highest = _mm256_setzero_si256();
    __m256i any_zero = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (unsigned i = 0; i < kRowVectors; ++i) {
      const __m256i row = rows_of(codes, i);
      const __m256i zero = _mm256_cmpeq_epi8(row, _mm256_setzero_si256());
      const __m256i exponent = _mm256_andnot_si256(zero, _mm256_add_epi8(row, all_bytes(table.base)));
      const __m256i width = kWhole ? zero : codes.rows[i / kByteVectors].widths[i % kByteVectors];
      store_words(stretch.exponents + kBytesAtOnce * i, exponent);
      store_words(stretch.widths + kBytesAtOnce * i, width);
      highest = _mm256_max_epu8(highest, row);
      any_zero = _mm256_or_si256(any_zero, zero);
    }
    bool legal = true;
    const bool escapes = _mm256_movemask_epi8(_mm256_cmpeq_epi8(highest, all_bytes(kEscapeSlot))) != 0;
    if (escapes) [[unlikely]]
      at = read_escapes(table, lanes, codes, stretch, at, legal);
    // Keeps compilers from taking vectors apart, which takes longer than loading eight bytes.
    asm("" : "+m"(stretch));
    refill<kTail>(codes.shifts, count, lanes, at);
    if constexpr (!kTail) read_codes<kWhole, kTail>(code_table, lanes, count, codes);
    if (kWhole && !escapes && _mm256_testz_si256(any_zero, any_zero) != 0) {
      decode_dense<kDeliver>(stretch, at, scale, slot);
      return nullptr;
    }
    const Fault fault = decode_any<kWhole, kDeliver>(stretch, mantissas, at, scale, slot);
    return legal ? fault : &faults::kEscape;
  }

  [[gnu::always_inline]] Fault open(const std::byte* states) noexcept {
    if (!open_lanes(states, lanes)) return &faults::kLaneState;
    alignas(32) std::uint32_t held[kMaxMantissaLanes] = {};
    alignas(32) std::uint32_t filled[kMaxMantissaLanes] = {};
    for (unsigned lane = 0; !kWhole && lane < kMaxMantissaLanes; ++lane) {
      const std::byte* const at = states + (kMaxLanes + lane) * kStateBytes;
      if (!open_lane(at, 0, held[lane], filled[lane])) return &faults::kLaneState;
    }
    for (unsigned half = 0; half < 2; ++half) {
      mantissas.held[half] = load_words(held + kVectorWords * half);
      mantissas.filled[half] = load_words(filled + kVectorWords * half);
    }
    read_codes<kWhole, false>(code_table, lanes, kMaxStretch, codes);
    return nullptr;
  }

  template <Deliver kDeliver>
  [[gnu::always_inline]] Fault stretch(std::uint32_t count, const std::byte*& at, float* slot) noexcept {
    return count == kMaxStretch ? read<false, kDeliver>(count, at, slot)
                                : read<true, kDeliver>(count, at, slot);
  }

  Fault close() const noexcept {
    const __m256i left = _mm256_or_si256(_mm256_or_si256(mantissas.held[0], mantissas.held[1]),
                                         _mm256_or_si256(mantissas.filled[0], mantissas.filled[1]));
    return all_ended(lanes) && _mm256_testz_si256(left, left) != 0 ? nullptr : &faults::kLaneEnd;
  }
};

template <bool kWhole, Deliver kDeliver>
Fault decode_lanes(const BlockBytes& body, const DecodeTable& table, const Target& target) noexcept {
  CodeTable code_table;
  make_code_table<kWhole>(table, code_table);
  Lanes lanes;
  Codes codes;
  Mantissas mantissas;
  Decoder<kWhole> decoder{table, code_table, lanes, codes, mantissas, _mm256_set1_ps(target.scale)};
  const Fault fault = decode_by<kDeliver>(decoder, body, target);
  if constexpr (kDeliver == Deliver::kStream) _mm_sfence();
  return fault;
}

// `payload` may be null: zeros.
template <Deliver kDeliver>
void hand_over(const std::byte* payload, const Target& target) noexcept {
  const __m256 scale = _mm256_set1_ps(target.scale);
  const std::uint32_t full = target.count / kVectorWords * kVectorWords;
  for (std::uint32_t i = 0; i < full; i += kVectorWords) {
    const __m256i bits = payload != nullptr ? load_words(payload + i * kValueBytes) : _mm256_setzero_si256();
    deliver<kDeliver>(bits, scale, target.slot + i);
  }
  if constexpr (kDeliver == Deliver::kStream) _mm_sfence();
  hand_over_rest(payload, target, full);
}

}  // namespace

Fault decode_block(const BlockBytes& body, const DecodeTable& table, const Target& target) {
  if (lanes_for(target.count) < kMaxLanes) {
    return kernels_for(TargetId::kReference).decode_block(body, table, target);
  }
  return for_target<32>(target, [&]<Deliver kDeliver>() {
    return table.in_bytes ? decode_lanes<true, kDeliver>(body, table, target)
                          : decode_lanes<false, kDeliver>(body, table, target);
  });
}

void decode_stored(const std::byte* payload, const Target& target) {
  for_target<32>(target, [&]<Deliver kDeliver>() { hand_over<kDeliver>(payload, target); });
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
