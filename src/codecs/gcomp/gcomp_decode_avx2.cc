// Decoding for AVX2: blocks of 64 lanes. Shorter ones are left to the reference.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_decode_ops.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx2.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

constexpr Places kPlaces = make_places();

// The lanes of a block, cleared of what was read.
struct Lanes {
  alignas(32) std::uint32_t codes[kMaxLanes];
  alignas(32) std::uint32_t held[kMaxLanes];
  alignas(32) std::uint32_t mantissas[kMaxMantissaLanes];
  alignas(32) std::uint32_t filled[kMaxMantissaLanes];
};

struct Stretch {
  alignas(32) std::uint32_t entries[kMaxStretch];
  alignas(32) std::uint32_t escaped[kMaxStretch];  // exponents behind escapes
  bool escapes = false;
};

// Reads one row of 64 codes. What is not there has no length and no width.
[[gnu::always_inline]] inline void read_row(const DecodeTable& table, std::uint32_t count, std::uint32_t row,
                                            Lanes& lanes, Stretch& stretch) noexcept {
  std::uint32_t* const entries = stretch.entries + row * kMaxLanes;
#pragma GCC unroll 16
  for (unsigned lane = 0; lane < kMaxLanes; ++lane) {
    entries[lane] = table.entry[static_cast<std::uint8_t>(lanes.codes[lane])];
  }
  for (unsigned lane = count < kMaxLanes ? count : kMaxLanes; lane < kMaxLanes; ++lane) entries[lane] = 0;
  const __m256i length_mask = all_words(kEntryLengthMask);
#pragma GCC unroll 8
  for (unsigned lane = 0; lane < kMaxLanes; lane += kVectorWords) {
    const __m256i length = _mm256_and_si256(load_words(entries + lane), length_mask);
    store_words(lanes.codes + lane, _mm256_srlv_epi32(load_words(lanes.codes + lane), length));
    store_words(lanes.held + lane, _mm256_sub_epi32(load_words(lanes.held + lane), length));
  }
}

[[gnu::always_inline]] inline __m256i is_escape(__m256i entries) noexcept {
  return _mm256_cmpgt_epi32(entries, all_words((kEscapeSlot << kEntryRowShift) - 1));
}

[[gnu::always_inline]] inline bool has_escapes(const Stretch& stretch) noexcept {
  __m256i any = _mm256_setzero_si256();
#pragma GCC unroll 16
  for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
    any = _mm256_or_si256(any, is_escape(load_words(stretch.entries + i)));
  }
  return _mm256_testz_si256(any, any) == 0;
}

// Returns where their exponents begin. Sets `legal` to whether all of them may be.
const std::byte* read_escapes(const DecodeTable& table, Stretch& stretch, const std::byte* at,
                              bool& legal) noexcept {
  for (unsigned vector = kMaxStretch / kVectorWords; vector-- > 0;) {
    const __m256i entries = load_words(stretch.entries + kVectorWords * vector);
    for (std::uint32_t left = high_bits(is_escape(entries)); left != 0;) {
      const unsigned bit = bit_width(left) - 1;
      left ^= 1U << bit;
      const auto exponent = static_cast<std::uint32_t>(*--at);
      legal &= may_escape(table, exponent);
      stretch.escaped[kVectorWords * vector + bit] = exponent;
    }
  }
  return at;
}

[[gnu::always_inline]] inline void refill(Lanes& lanes, const std::byte*& at) noexcept {
  const __m256i word_bits = all_words(kWordBits);
#pragma GCC unroll 8
  for (int vector = kMaxLanes / kVectorWords - 1; vector >= 0; --vector) {
    const unsigned i = static_cast<unsigned>(vector) * kVectorWords;
    const __m256i held = load_words(lanes.held + i);
    const __m256i needs = _mm256_cmpgt_epi32(word_bits, held);
    const std::uint32_t mask = high_bits(needs);
    at -= popcount(mask) * kWordBytes;
    const __m256i next = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    const __m256i spread = _mm256_permutevar8x32_epi32(next, places_of(kPlaces.spread[mask]));
    const __m256i words = _mm256_sllv_epi32(_mm256_and_si256(needs, spread), held);
    store_words(lanes.codes + i, _mm256_or_si256(load_words(lanes.codes + i), words));
    store_words(lanes.held + i, _mm256_add_epi32(held, _mm256_and_si256(needs, word_bits)));
  }
}

// The next eight numbers of `width` bits from the lanes from `lane` on, in the upper bits.
[[gnu::always_inline]] inline __m256i read_mantissas(__m256i width, unsigned lane, Lanes& lanes,
                                                     const std::byte*& at) noexcept {
  const __m256i filled = load_words(lanes.filled + lane);
  const __m256i held = load_words(lanes.mantissas + lane);
  const __m256i needs = _mm256_cmpgt_epi32(width, filled);
  const std::uint32_t mask = high_bits(needs);
  at -= popcount(mask) * kMantissaWordBytes;
  const __m256i spread = _mm256_permutevar8x32_epi32(load_words(at), places_of(kPlaces.spread[mask]));
  const __m256i words = _mm256_and_si256(needs, spread);
  const __m256i x = _mm256_or_si256(held, _mm256_sllv_epi32(words, filled));
  const __m256i rest = _mm256_sub_epi32(width, filled);
  store_words(lanes.mantissas + lane,
              _mm256_or_si256(_mm256_srlv_epi32(held, width), _mm256_srlv_epi32(words, rest)));
  store_words(lanes.filled + lane,
              _mm256_and_si256(_mm256_sub_epi32(filled, width), all_words(kMantissaWordBits - 1)));
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

// Values i to i + 7 of a stretch. Sets highest bits of `wrong` for tiny ones that are +0.
template <bool kWhole>
[[gnu::always_inline]] inline __m256i assemble(const DecodeTable& table, const Stretch& stretch, unsigned i,
                                               Lanes& lanes, const std::byte*& at, __m256i& wrong) noexcept {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i entry = load_words(stretch.entries + i);
  const __m256i row = _mm256_srli_epi32(entry, kEntryRowShift);
  __m256i exponent =
      _mm256_andnot_si256(_mm256_cmpeq_epi32(row, zero), _mm256_add_epi32(row, all_words(table.base)));
  if (stretch.escapes) [[unlikely]] {
    exponent = _mm256_blendv_epi8(exponent, load_words(stretch.escaped + i), is_escape(entry));
  }
  const __m256i width =
      _mm256_and_si256(_mm256_srli_epi32(entry, kEntryWidthShift), all_words(kEntryWidthMask));
  __m256i upper;
  const __m256i some = _mm256_cmpgt_epi32(width, zero);
  if constexpr (kWhole) {
    upper = take_mantissas(some, at);
  } else {
    upper = read_mantissas(width, i % kMaxMantissaLanes, lanes, at);
  }
  const __m256i mantissa = _mm256_and_si256(_mm256_srli_epi32(upper, 8), all_words(kMantissaMask));
  const __m256i sign = _mm256_and_si256(upper, all_words(kSignBit));
  const __m256i bits =
      _mm256_or_si256(_mm256_or_si256(sign, mantissa), _mm256_slli_epi32(exponent, kMantissaBits));
  if constexpr (kWhole)
    wrong = _mm256_or_si256(wrong, _mm256_and_si256(some, _mm256_cmpeq_epi32(bits, zero)));
  return bits;
}

// Reads a stretch of `count` values downwards from `at`; writes all of it.
template <bool kWhole, Deliver kDeliver>
[[gnu::always_inline]] inline Fault decode_stretch(const DecodeTable& table, Lanes& lanes,
                                                   std::uint32_t count, const std::byte*& at, __m256 scale,
                                                   float* slot) noexcept {
  Stretch stretch;
  read_row(table, count, 0, lanes, stretch);
  read_row(table, count < kMaxLanes ? 0 : count - kMaxLanes, 1, lanes, stretch);
  stretch.escapes = has_escapes(stretch);
  bool legal = true;
  if (stretch.escapes) [[unlikely]]
    at = read_escapes(table, stretch, at, legal);
  refill(lanes, at);
  __m256i wrong = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int vector = kMaxStretch / kVectorWords - 1; vector >= 0; --vector) {
    const unsigned i = static_cast<unsigned>(vector) * kVectorWords;
    const __m256i bits = assemble<kWhole>(table, stretch, i, lanes, at, wrong);
    deliver<kDeliver>(bits, scale, slot + i);
  }
  if (!legal) return Fault::kEscape;
  return _mm256_testz_si256(wrong, wrong) != 0 ? Fault::kNone : Fault::kTinyZero;
}

Fault open_lanes(const std::byte* states, bool whole, Lanes& lanes) noexcept {
  const std::byte* at = states;
  for (unsigned lane = 0; lane < kMaxLanes; ++lane, at += kStateBytes) {
    const auto state = load_le<std::uint32_t>(at);
    if (state >> kWordBits == 0) return Fault::kLaneState;
    lanes.held[lane] = bit_width(state) - 1;
    lanes.codes[lane] = state ^ 1U << lanes.held[lane];
  }
  for (unsigned lane = 0; lane < kMaxMantissaLanes; ++lane, at += kStateBytes) {
    const auto state = whole ? 1 : load_le<std::uint32_t>(at);
    if (state == 0) return Fault::kLaneState;
    lanes.filled[lane] = bit_width(state) - 1;
    lanes.mantissas[lane] = state ^ 1U << lanes.filled[lane];
  }
  return Fault::kNone;
}

template <bool kWhole>
struct Decoder {
  const DecodeTable& table;
  __m256 scale;
  Lanes lanes;

  [[gnu::always_inline]] Fault open(const std::byte* states) noexcept {
    return open_lanes(states, kWhole, lanes);
  }

  template <Deliver kDeliver>
  [[gnu::always_inline]] Fault stretch(std::uint32_t count, const std::byte*& at, float* slot) noexcept {
    return decode_stretch<kWhole, kDeliver>(table, lanes, count, at, scale, slot);
  }

  Fault close() const noexcept {
    std::uint32_t left = 0;
    for (unsigned lane = 0; lane < kMaxLanes; ++lane)
      left |= lanes.codes[lane] | (lanes.held[lane] ^ kWordBits);
    for (unsigned lane = 0; lane < kMaxMantissaLanes; ++lane)
      left |= lanes.mantissas[lane] | lanes.filled[lane];
    return left == 0 ? Fault::kNone : Fault::kLaneEnd;
  }
};

template <bool kWhole, Deliver kDeliver>
Fault decode_lanes(const BlockBytes& body, const DecodeTable& table, const Target& target) noexcept {
  Decoder<kWhole> decoder{table, _mm256_set1_ps(target.scale), {}};
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
    return table.whole ? decode_lanes<true, kDeliver>(body, table, target)
                       : decode_lanes<false, kDeliver>(body, table, target);
  });
}

void decode_stored(const std::byte* payload, const Target& target) {
  for_target<32>(target, [&]<Deliver kDeliver>() { hand_over<kDeliver>(payload, target); });
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
