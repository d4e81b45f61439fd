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
constexpr HalfPlaces kHalfPlaces = make_half_places();

constexpr unsigned kVectors = kMaxLanes / kVectorWords;  // of lanes, and of values in a row

// What two codes in a lane mean, in a word: from the lowest bit on the length of both together, their widths,
// and their exponents in a byte each. The tables have one for each value of the next 8 bits, as the first
// code and as the second; their sum is that of both.
constexpr std::uint32_t kPairLengthMask = 31;
constexpr unsigned kPairWidthShift = 5;  // of the first; the second is as many bits above
constexpr unsigned kPairExponentShift = 16;
constexpr std::uint32_t kPairExponentsMask = 0xFFFF0000;

struct PairTables {
  alignas(32) std::uint32_t first[1U << kMaxCodeBits];
  alignas(32) std::uint32_t second[1U << kMaxCodeBits];
  std::uint32_t escape = 0;  // what an escape has for an exponent: one without a code, and not 0
};

void make_tables(const DecodeTable& table, PairTables& tables) noexcept {
  // Rows 0 and 31 have no exponents of their own, and one of the two is a byte above 0.
  const std::uint32_t last = table.base + kEscapeSlot;
  tables.escape = last < 256 ? last : table.base;
  for (std::uint32_t i = 0; i < 1U << kMaxCodeBits; i += kVectorWords) {
    const __m128i entries = _mm_load_si128(reinterpret_cast<const __m128i*>(table.entry + i));
    const __m256i entry = _mm256_cvtepu16_epi32(entries);
    const __m256i length = _mm256_and_si256(entry, all_words(kEntryLengthMask));
    const __m256i width =
        _mm256_and_si256(_mm256_srli_epi32(entry, kEntryWidthShift), all_words(kEntryWidthMask));
    const __m256i row = _mm256_srli_epi32(entry, kEntryRowShift);
    const __m256i zero = _mm256_cmpeq_epi32(row, _mm256_setzero_si256());
    const __m256i escape = _mm256_cmpeq_epi32(row, all_words(kEscapeSlot));
    const __m256i in_window = _mm256_andnot_si256(zero, _mm256_add_epi32(row, all_words(table.base)));
    const __m256i exponent = _mm256_blendv_epi8(in_window, all_words(tables.escape), escape);
    const auto pair = [&](unsigned nth) {
      const __m256i shifted = _mm256_slli_epi32(width, static_cast<int>(kPairWidthShift * (nth + 1)));
      const __m256i above = _mm256_slli_epi32(exponent, static_cast<int>(kPairExponentShift + 8 * nth));
      return _mm256_or_si256(_mm256_or_si256(length, shifted), above);
    };
    store_words(tables.first + i, pair(0));
    store_words(tables.second + i, pair(1));
  }
}

// The lanes of a block, cleared of what was read.
struct Lanes {
  alignas(32) std::uint32_t codes[kMaxLanes];
  alignas(32) std::uint32_t held[kMaxLanes];
  alignas(32) std::uint32_t mantissas[kMaxMantissaLanes];
  alignas(32) std::uint32_t filled[kMaxMantissaLanes];
  // What the next two codes of each lane mean. They are looked up as soon as they are there, a stretch early,
  // while vectors are busy with mantissas: a vector can't be loaded at once from where words were just
  // stored.
  alignas(32) std::uint32_t next[kMaxLanes];
};

struct Stretch {
  __m256i pairs[kVectors];
  alignas(32) std::uint32_t escaped[kMaxStretch];  // exponents behind escapes
  bool escapes = false;
};

[[gnu::always_inline]] inline void look_up(const PairTables& tables, Lanes& lanes) noexcept {
#pragma GCC unroll 16
  for (unsigned lane = 0; lane < kMaxLanes; ++lane) {
    std::uint32_t x = lanes.codes[lane];
    // Keeps compilers from making vectors of several lanes, word by word, which takes twice the time.
    asm("" : "+r"(x));
    const std::uint32_t first = tables.first[static_cast<std::uint8_t>(x)];
    const std::uint32_t rest = x >> (first & kPairLengthMask);
    lanes.next[lane] = first + tables.second[static_cast<std::uint8_t>(rest)];
  }
}

// The same where a stretch has fewer than 128 values: what is not there has no length and no width.
void look_up_last(const PairTables& tables, std::uint32_t count, Lanes& lanes) noexcept {
  for (unsigned lane = 0; lane < kMaxLanes; ++lane) {
    const std::uint32_t x = lanes.codes[lane];
    const std::uint32_t first = lane < count ? tables.first[static_cast<std::uint8_t>(x)] : 0;
    const std::uint32_t rest = x >> (first & kPairLengthMask);
    const std::uint32_t second =
        lane + kMaxLanes < count ? tables.second[static_cast<std::uint8_t>(rest)] : 0;
    lanes.next[lane] = first + second;
  }
}

// Of the values in row `row`, the first codes of pairs or the second.
[[gnu::always_inline]] inline __m256i exponents_of(__m256i pairs, unsigned row) noexcept {
  return _mm256_and_si256(_mm256_srli_epi32(pairs, static_cast<int>(kPairExponentShift + 8 * row)),
                          all_words(0xFF));
}

[[gnu::always_inline]] inline __m256i widths_of(__m256i pairs, unsigned row) noexcept {
  return _mm256_and_si256(_mm256_srli_epi32(pairs, static_cast<int>(kPairWidthShift * (row + 1))),
                          all_words(kEntryWidthMask));
}

// Whether any of the exponents has the value `exponent`.
[[gnu::always_inline]] inline bool has_exponent(const Stretch& stretch, std::uint32_t exponent) noexcept {
  const __m256i each = _mm256_set1_epi8(static_cast<char>(exponent));
  __m256i any = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (const __m256i& pairs : stretch.pairs) any = _mm256_or_si256(any, _mm256_cmpeq_epi8(pairs, each));
  return _mm256_testz_si256(any, all_words(kPairExponentsMask)) == 0;
}

// Returns where their exponents begin. Sets `legal` to whether all of them may be.
const std::byte* read_escapes(const DecodeTable& table, std::uint32_t escape, Stretch& stretch,
                              const std::byte* at, bool& legal) noexcept {
  for (unsigned vector = 2 * kVectors; vector-- > 0;) {
    const __m256i exponents = exponents_of(stretch.pairs[vector % kVectors], vector / kVectors);
    const __m256i escapes = _mm256_cmpeq_epi32(exponents, all_words(escape));
    store_words(stretch.escaped + kVectorWords * vector, exponents);
    for (std::uint32_t left = high_bits(escapes); left != 0;) {
      const unsigned bit = bit_width(left) - 1;
      left ^= 1U << bit;
      const auto exponent = static_cast<std::uint32_t>(*--at);
      legal &= may_escape(table, exponent);
      stretch.escaped[kVectorWords * vector + bit] = exponent;
    }
  }
  return at;
}

// Takes a stretch's codes off the lanes, and gives new words to those that lack some.
[[gnu::always_inline]] inline void refill(const Stretch& stretch, Lanes& lanes,
                                          const std::byte*& at) noexcept {
  const __m256i word_bits = all_words(kWordBits);
#pragma GCC unroll 8
  for (int vector = kVectors - 1; vector >= 0; --vector) {
    const unsigned i = static_cast<unsigned>(vector) * kVectorWords;
    const __m256i length = _mm256_and_si256(stretch.pairs[vector], all_words(kPairLengthMask));
    const __m256i held = _mm256_sub_epi32(load_words(lanes.held + i), length);
    const __m256i codes = _mm256_srlv_epi32(load_words(lanes.codes + i), length);
    const __m256i needs = _mm256_cmpgt_epi32(word_bits, held);
    const std::uint32_t mask = high_bits(needs);
    at -= popcount(mask) * kWordBytes;
    const __m128i words = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)),
                                           bytes_of(kHalfPlaces.spread[mask]));
    const __m256i upper = _mm256_sllv_epi32(_mm256_cvtepu16_epi32(words), held);
    store_words(lanes.codes + i, _mm256_or_si256(codes, upper));
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

// The float of an exponent and what stands in the upper 24 bits, sign and mantissa.
[[gnu::always_inline]] inline __m256i assembled(__m256i exponent, __m256i upper) noexcept {
  const __m256i rest = _mm256_and_si256(_mm256_srai_epi32(upper, 8), all_words(kSignBit | kMantissaMask));
  return _mm256_or_si256(rest, _mm256_slli_epi32(exponent, kMantissaBits));
}

// Values 8 vector to 8 vector + 7 of a stretch. Sets highest bits of `wrong` for tiny ones that are +0.
template <bool kWhole>
[[gnu::always_inline]] inline __m256i assemble(const Stretch& stretch, unsigned vector, Lanes& lanes,
                                               const std::byte*& at, __m256i& wrong) noexcept {
  const unsigned row = vector / kVectors;
  const __m256i pairs = stretch.pairs[vector % kVectors];
  const __m256i exponent =
      stretch.escapes ? load_words(stretch.escaped + kVectorWords * vector) : exponents_of(pairs, row);
  const __m256i width = widths_of(pairs, row);
  if constexpr (!kWhole) {
    const unsigned lane = kVectorWords * vector % kMaxMantissaLanes;
    return assembled(exponent, read_mantissas(width, lane, lanes, at));
  } else {
    const __m256i zero = _mm256_setzero_si256();
    const __m256i some = _mm256_cmpgt_epi32(width, zero);
    const __m256i bits = assembled(exponent, take_mantissas(some, at));
    wrong = _mm256_or_si256(wrong, _mm256_and_si256(some, _mm256_cmpeq_epi32(bits, zero)));
    return bits;
  }
}

// The same where all have exponents and 3 bytes, those of the last one right below `at`.
[[gnu::always_inline]] inline __m256i assemble_dense(__m256i pairs, unsigned row,
                                                     const std::byte* at) noexcept {
  const auto* const low = reinterpret_cast<const __m128i*>(at - kVectorWords * kSignMantissaBytes);
  const auto* const high = reinterpret_cast<const __m128i*>(at - kVectorWords / 2 * kSignMantissaBytes);
  const __m256i packed =
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)), _mm_loadu_si128(high), 1);
  // The highest byte twice: for the sign, and for the mantissa.
  const __m256i places = _mm256_setr_epi8(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11,  //
                                          0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
  const __m256i rest =
      _mm256_and_si256(_mm256_shuffle_epi8(packed, places), all_words(kSignBit | kMantissaMask));
  constexpr unsigned kFirst = kMantissaBits - kPairExponentShift;
  const __m256i shifted = row == 0 ? _mm256_slli_epi32(pairs, kFirst) : _mm256_srli_epi32(pairs, 8 - kFirst);
  return _mm256_or_si256(rest, _mm256_and_si256(shifted, all_words(kExponentMask)));
}

// Whether no value of a whole chunk's stretch is +0, tiny or escaped.
[[gnu::always_inline]] inline bool is_dense(const Stretch& stretch) noexcept {
  return !stretch.escapes && !has_exponent(stretch, 0);
}

// Reads a stretch of `count` values downwards from `at`; writes all of it.
template <bool kWhole, Deliver kDeliver>
[[gnu::always_inline]] inline Fault decode_stretch(const DecodeTable& table, const PairTables& tables,
                                                   Lanes& lanes, std::uint32_t count, const std::byte*& at,
                                                   __m256 scale, float* slot) noexcept {
  if (count < kMaxStretch) [[unlikely]]
    look_up_last(tables, count, lanes);
  Stretch stretch;
#pragma GCC unroll 8
  for (unsigned i = 0; i < kVectors; ++i) stretch.pairs[i] = load_words(lanes.next + kVectorWords * i);
  stretch.escapes = has_exponent(stretch, tables.escape);
  bool legal = true;
  if (stretch.escapes) [[unlikely]]
    at = read_escapes(table, tables.escape, stretch, at, legal);
  refill(stretch, lanes, at);
  look_up(tables, lanes);
  if (kWhole && is_dense(stretch)) {
#pragma GCC unroll 16
    for (int i = 2 * kVectors - 1; i >= 0; --i) {
      const auto vector = static_cast<unsigned>(i);
      const std::byte* const behind = at - (2 * kVectors - 1 - vector) * kVectorWords * kSignMantissaBytes;
      const __m256i pairs = stretch.pairs[vector % kVectors];
      deliver<kDeliver>(assemble_dense(pairs, vector / kVectors, behind), scale,
                        slot + kVectorWords * vector);
    }
    at -= kMaxStretch * kSignMantissaBytes;
    return Fault::kNone;
  }
  __m256i wrong = _mm256_setzero_si256();
#pragma GCC unroll 16
  for (int i = 2 * kVectors - 1; i >= 0; --i) {
    const auto vector = static_cast<unsigned>(i);
    const __m256i bits = assemble<kWhole>(stretch, vector, lanes, at, wrong);
    deliver<kDeliver>(bits, scale, slot + kVectorWords * vector);
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
  PairTables tables;
  Lanes lanes;

  [[gnu::always_inline]] Fault open(const std::byte* states) noexcept {
    make_tables(table, tables);
    const Fault fault = open_lanes(states, kWhole, lanes);
    if (fault == Fault::kNone) look_up(tables, lanes);
    return fault;
  }

  template <Deliver kDeliver>
  [[gnu::always_inline]] Fault stretch(std::uint32_t count, const std::byte*& at, float* slot) noexcept {
    return decode_stretch<kWhole, kDeliver>(table, tables, lanes, count, at, scale, slot);
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
  Decoder<kWhole> decoder{table, _mm256_set1_ps(target.scale), {}, {}};
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
