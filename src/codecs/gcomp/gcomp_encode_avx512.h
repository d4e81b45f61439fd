// Encoding for AVX-512: blocks of 64 lanes. Shorter ones are left to the reference. What includes this has
// included the words that fit its target.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_classify_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kAhead = 512;  // elements before the current stretch that are fetched early

// The codes of a block as words: of each, from the highest bit on, the code, its length, and the bits of sign
// and mantissa behind it in threes. What is looked up: 32 * level + exponent above the window's lowest.
constexpr unsigned kLengthShift = 4;
constexpr std::uint32_t kEntryMask = 15;
constexpr std::uint32_t kCodeMask = 0xFF00;
constexpr std::uint32_t kEscapeIndex = kWindow;
constexpr std::uint32_t kZeroIndex = kWindow + 1;

[[gnu::always_inline]] inline __m512i to_left(__m512i entries) noexcept {
  const __m512i mask = all_words(kEntryMask);
  const __m512i length = _mm512_and_si512(entries, mask);
  const __m512i code =
      _mm512_and_si512(_mm512_srli_epi16(entries, kEntryCodeShift), all_words(kEntryCodeMask));
  const __m512i thirds = _mm512_srli_epi16(entries, kEntryThirdsShift);
  const __m512i left = _mm512_sllv_epi16(code, _mm512_sub_epi16(all_words(kWordBits), length));
  return _mm512_or_si512(left, _mm512_or_si512(_mm512_slli_epi16(length, kLengthShift), thirds));
}

// kWhole: of level 0 alone.
template <bool kWhole>
class Codes {
 public:
  [[gnu::always_inline]] explicit Codes(const EncodeTable& table) noexcept
      : lowest_(all_words((table.base + 1) << kExponentShift)),
        escape_(to_left(all_words(table.escape))),
        tiny_(to_left(all_words(table.entry[kTinySlot]))) {
    const __m512i zero = to_left(all_words(table.entry[kZeroSlot]));
    constexpr __mmask32 kRest = 1U << kEscapeIndex | 1U << kZeroIndex;
#pragma GCC unroll 8
    for (unsigned i = 0; i < kParts; ++i) {
      // The last row of a level has no exponent; behind that of the last level nothing is read.
      const __m512i rows = _mm512_maskz_loadu_epi16(~kRest, table.entry + kRows * i + 1);
      const __m512i escaped = _mm512_mask_mov_epi16(to_left(rows), 1U << kEscapeIndex, escape_);
      table_.part[i] = _mm512_mask_mov_epi16(escaped, 1U << kZeroIndex, zero);
    }
  }

  [[gnu::always_inline]] __m512i operator()(const Classified32& values) const noexcept {
    const __m512i above = _mm512_sub_epi16(values.exponents, lowest_);
    const __m512i within = _mm512_min_epu16(above, all_words(kEscapeIndex << kExponentShift));
    const __m512i row = _mm512_srli_epi16(within, kExponentShift);
    if constexpr (kWhole) {
      const __m512i index = _mm512_mask_mov_epi16(row, values.zeros, all_words(kZeroIndex));
      const __m512i entries = _mm512_permutexvar_epi16(index, table_.part[0]);
      return _mm512_mask_mov_epi16(entries, values.tiny, tiny_);
    } else {
      const __m512i index = _mm512_ternarylogic_epi32(values.levels, all_words(kLevelWord), row, 0xEA);
      return look_up(table_, _mm512_mask_mov_epi16(index, values.zeros, all_words(kZeroIndex)));
    }
  }

  [[gnu::always_inline]] __mmask32 escapes(__m512i entries) const noexcept {
    return _mm512_cmpeq_epi16_mask(entries, escape_);
  }

 private:
  static constexpr unsigned kParts = kWhole ? 1 : kLevels;

  Table<kParts> table_;
  __m512i lowest_;
  __m512i escape_;
  __m512i tiny_;
};

// A block on its way out. Lanes as in the reference, in words: the 16 bits of a lane that leave next, and as
// many as `held` of those that come after them, highest first. Of mantissas there are those alone. No
// function that isn't inlined gets its address: so it stays in registers, which bytes that are written can't
// change.
struct Writer {
  __m512i leaving[2];
  __m512i codes[2];
  __m512i held[2];
  __m512i mantissas;
  __m512i filled;
  __m512i any;  // what is kept, or-ed
  std::byte* at = nullptr;
};

// `upper`: signs and mantissas in the upper bits, of which all but `width` are 0.
[[gnu::always_inline]] inline void push_mantissas(__m512i upper, __m512i width, Writer& writer) noexcept {
  const __m512i word_bits = _mm512_set1_epi32(kMantissaWordBits);
  const __m512i all = _mm512_or_si512(writer.mantissas, _mm512_srlv_epi32(upper, writer.filled));
  const __m512i sum = _mm512_add_epi32(writer.filled, width);
  const __mmask16 leave = _mm512_test_epi32_mask(sum, word_bits);
  _mm512_storeu_si512(writer.at, _mm512_maskz_compress_epi32(leave, all));
  writer.at += popcount(leave) * kMantissaWordBytes;
  writer.mantissas = _mm512_mask_sllv_epi32(all, leave, upper, _mm512_sub_epi32(word_bits, writer.filled));
  writer.filled = _mm512_andnot_si512(word_bits, sum);
}

[[gnu::always_inline]] inline void append_mantissas(__m512i upper, __mmask16 some, Writer& writer) noexcept {
  _mm512_storeu_si512(writer.at, upper_to_three_bytes(_mm512_maskz_compress_epi32(some, upper)));
  writer.at += popcount(some) * kSignMantissaBytes;
}

// Sign and mantissa in the upper 24 bits.
[[gnu::always_inline]] inline __m512i upper_of(__m512i kept) noexcept {
  return _mm512_ternarylogic_epi32(_mm512_set1_epi32(static_cast<int>(kSignBit)), kept,
                                   _mm512_slli_epi32(kept, 8), 0xCA);
}

// Words from the order of pairs to that of lanes.
[[gnu::always_inline]] inline __m512i in_order(__m512i words) noexcept {
  alignas(64) static constexpr std::uint16_t kPlaces[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                            22, 24, 26, 28, 30, 1,  3,  5,  7,  9,  11,
                                                            13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kPlaces), words);
}

// Of 32 lanes two codes each: of entries in row 0, and behind them in row 1.
[[gnu::always_inline]] inline void push_codes(__m512i first, __m512i second, unsigned lanes,
                                              Writer& writer) noexcept {
  const __m512i length_mask = all_words(kEntryMask);
  const __m512i code_mask = all_words(kCodeMask);
  const __m512i later = _mm512_and_si512(_mm512_srli_epi16(second, kLengthShift), length_mask);
  const __m512i earlier = _mm512_and_si512(_mm512_srli_epi16(first, kLengthShift), length_mask);
  const __m512i below = _mm512_srlv_epi16(_mm512_and_si512(first, code_mask), later);
  // The later one above.
  const __m512i code = in_order(_mm512_ternarylogic_epi32(second, code_mask, below, 0xEA));
  const __m512i length = in_order(_mm512_add_epi16(earlier, later));
  const __m512i word_bits = all_words(kWordBits);
  const __m512i held = writer.held[lanes];
  const __m512i all = _mm512_or_si512(writer.codes[lanes], _mm512_srlv_epi16(code, held));
  const __m512i sum = _mm512_add_epi16(held, length);
  const __mmask32 leave = _mm512_test_epi16_mask(sum, word_bits);
  writer.at = append_words(leave, writer.leaving[lanes], writer.at);
  writer.leaving[lanes] = _mm512_mask_mov_epi16(writer.leaving[lanes], leave, all);
  writer.codes[lanes] = _mm512_mask_sllv_epi16(all, leave, code, _mm512_sub_epi16(word_bits, held));
  writer.held[lanes] = _mm512_andnot_si512(word_bits, sum);
}

// Four times 32 values: their exponents as words, and which of them are escaped.
struct Escapes {
  __m512i exponents[4];
  __mmask32 which[4];
};

// Exponents of escaped values, in their order. Returns where they end.
std::byte* append_escapes(const Escapes& escapes, std::byte* at) noexcept {
  for (unsigned i = 0; i < 4; ++i) {
    alignas(64) std::uint16_t exponents[32];
    _mm512_store_si512(exponents, in_order(_mm512_srli_epi16(escapes.exponents[i], kExponentShift)));
    const std::uint32_t which = escapes.which[i];
    std::uint32_t left = _pext_u32(which, 0x55555555U) | _pext_u32(which, 0xAAAAAAAAU) << 16;
    for (; left != 0; left &= left - 1) *at++ = static_cast<std::byte>(exponents[countr_zero(left)]);
  }
  return at;
}

// What stays the same for all stretches of a block.
template <Keep kKeep, bool kWhole>
struct Coder {
  const Values& block;
  Classifier32<kKeep, kWhole> classify;
  Codes<kWhole> codes;
};

[[gnu::always_inline]] inline void fetch(const float* values) noexcept {
  // Those of the next block, wherever they lie: fetching faults nowhere. They go no further than the second
  // cache, as it is long until they are needed.
  _mm_prefetch(reinterpret_cast<const char*>(values) + kBlockElements * sizeof(float), _MM_HINT_T1);
  _mm_prefetch(reinterpret_cast<const char*>(values) - kAhead * sizeof(float), _MM_HINT_T0);
}

// What will be needed of 32 values from `at` on, in the next block and soon in this one.
template <Keep kKeep, bool kResidual>
[[gnu::always_inline]] inline void fetch_early(const Values& block, std::uint32_t at) noexcept {
#pragma GCC unroll 2
  for (std::uint32_t i = at; i < at + 32; i += 16) {
    fetch(block.in + i);
    if constexpr (kKeep == Keep::kSignificance) fetch(block.significance + i);
    if constexpr (kResidual) fetch(block.residual + i);
  }
}

// Of 32 values from `at` on where their significance is, if that decides.
template <Keep kKeep>
struct Significance {
  [[gnu::always_inline]] Significance(const Values& values, std::uint32_t at) noexcept
      : of{kKeep == Keep::kSignificance ? values.significance + at : nullptr,
           kKeep == Keep::kSignificance ? values.significance + at + 16 : nullptr} {}
  const float* const of[2];
};

constexpr unsigned kPairs = kMaxStretch / 32;

// Writes the mantissas of 32 values.
template <bool kWhole>
[[gnu::always_inline]] inline void push_pair(const Classified32& values, __m512i entries,
                                             Writer& writer) noexcept {
#pragma GCC unroll 2
  for (unsigned i = 0; i < 2; ++i) {
    const __m512i upper = upper_of(values.kept[i]);
    if constexpr (kWhole) {
      append_mantissas(upper, values.some[i], writer);  // what is absent is +0
    } else {
      const __m512i widths = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 0, 0, 0, 0, 0, 0, 0);
      // Only 4 bits are looked at.
      const __m512i thirds = i == 0 ? entries : _mm512_srli_epi32(entries, 16);
      push_mantissas(upper, _mm512_permutexvar_epi32(thirds, widths), writer);
    }
  }
}

// Step by step for all values of the stretch: what one waits for is done for the others meanwhile.
template <Keep kKeep, bool kWhole, bool kResidual, bool kTail>
[[gnu::always_inline]] inline void push_stretch(const Coder<kKeep, kWhole>& coder, std::uint32_t begin,
                                                Writer& writer) noexcept {
  const Values& block = coder.block;
  Pair pairs[kPairs];
  __m512i levels[kPairs];
#pragma GCC unroll 4
  for (unsigned i = 0; i < kPairs; ++i) {
    const std::uint32_t at = begin + 32 * i;
    pairs[i] = pair_of<kResidual, kTail>(block, at);
    levels[i] = coder.classify.levels(pairs[i], Significance<kKeep>(block, at).of);
    fetch_early<kKeep, kResidual>(block, at);
  }
  Classified32 values[kPairs];
#pragma GCC unroll 4
  for (unsigned i = 0; i < kPairs; ++i) {
    values[i] = coder.classify.keep(pairs[i], levels[i]);
    keep_left_over<kResidual>(block, begin + 32 * i, pairs[i], values[i]);
    writer.any = _mm512_or_si512(writer.any, _mm512_or_si512(values[i].kept[0], values[i].kept[1]));
  }
  __m512i entries[kPairs];
  Escapes escapes;
#pragma GCC unroll 4
  for (unsigned i = 0; i < kPairs; ++i) {
    entries[i] = coder.codes(values[i]);
    if constexpr (kTail) entries[i] = _mm512_maskz_mov_epi16(in_pairs(pairs[i].present), entries[i]);
    escapes.exponents[i] = values[i].exponents;
    escapes.which[i] = coder.codes.escapes(entries[i]);
  }
#pragma GCC unroll 4
  for (unsigned i = 0; i < kPairs; ++i) push_pair<kWhole>(values[i], entries[i], writer);
  push_codes(entries[0], entries[2], 0, writer);
  push_codes(entries[1], entries[3], 1, writer);
  if ((escapes.which[0] | escapes.which[1] | escapes.which[2] | escapes.which[3]) != 0) [[unlikely]]
    writer.at = append_escapes(escapes, writer.at);
}

// Sixteen lanes that hold `held` bits, the lowest ones of `bits`.
[[gnu::always_inline]] inline std::byte* append_states(__m512i bits, __m512i held, std::byte* at) noexcept {
  _mm512_storeu_si512(at, _mm512_or_si512(bits, _mm512_sllv_epi32(_mm512_set1_epi32(1), held)));
  return at + 16 * kStateBytes;
}

void write_states(bool whole, const Writer& writer) noexcept {
  std::byte* at = writer.at;
  for (unsigned i = 0; i < 4; ++i) {
    const auto half = [i](__m512i words) {
      return _mm512_cvtepu16_epi32(i % 2 == 0 ? _mm512_castsi512_si256(words)
                                              : _mm512_extracti64x4_epi64(words, 1));
    };
    const __m512i held = half(writer.held[i / 2]);
    const __m512i lower =
        _mm512_srlv_epi32(half(writer.codes[i / 2]), _mm512_sub_epi32(_mm512_set1_epi32(kWordBits), held));
    const __m512i upper = _mm512_sllv_epi32(half(writer.leaving[i / 2]), held);
    at = append_states(_mm512_or_si512(upper, lower), _mm512_add_epi32(held, _mm512_set1_epi32(kWordBits)),
                       at);
  }
  if (whole) return;
  const __m512i unfilled = _mm512_sub_epi32(_mm512_set1_epi32(kMantissaWordBits), writer.filled);
  append_states(_mm512_srlv_epi32(writer.mantissas, unfilled), writer.filled, at);
}

template <Keep kKeep, bool kWhole, bool kResidual>
EncodedBlock encode_lanes(const Values& block, const EncodeTable& table, std::byte* out) noexcept {
  const Coder<kKeep, kWhole> coder{block, Classifier32<kKeep, kWhole>(block.rule), Codes<kWhole>(table)};
  const __m512i none = _mm512_setzero_si512();
  Writer writer{{none, none}, {none, none}, {none, none}, none, none, none, out};
  std::uint32_t begin = block.count / kMaxStretch * kMaxStretch;
  if (begin < block.count) push_stretch<kKeep, kWhole, kResidual, true>(coder, begin, writer);
  while (begin > 0) {
    begin -= kMaxStretch;
    push_stretch<kKeep, kWhole, kResidual, false>(coder, begin, writer);
  }
  write_states(kWhole, writer);
  return {static_cast<std::uint32_t>(writer.at - out), _mm512_test_epi32_mask(writer.any, writer.any) == 0};
}

EncodedBlock encode_block(const Values& block, const EncodeTable& table, std::byte* out) {
  if (lanes_for(block.count) < kMaxLanes) {
    return kernels_for(TargetId::kReference).encode_block(block, table, out);
  }
  return for_values(block, [&]<Keep kKeep, bool kWhole, bool kResidual>() {
    return encode_lanes<kKeep, kWhole, kResidual>(block, table, out);
  });
}

template <Keep kKeep, bool kWhole, bool kResidual>
void store_kept(const Values& values, std::byte* out) noexcept {
  const Classifier32<kKeep, kWhole> classify(values.rule);
  for (std::uint32_t at = 0; at < values.count; at += 32) {
    const Pair pair = pair_of<kResidual, true>(values, at);
    const Classified32 classified =
        classify.keep(pair, classify.levels(pair, Significance<kKeep>(values, at).of));
    keep_left_over<kResidual>(values, at, pair, classified);
    for (unsigned i = 0; i < 2; ++i) {
      _mm512_mask_storeu_epi32(out + (at + 16 * i) * kValueBytes, pair.present[i], classified.kept[i]);
    }
  }
}

void store_values(const Values& values, std::byte* out) {
  for_values(values, [&]<Keep kKeep, bool kWhole, bool kResidual>() {
    store_kept<kKeep, kWhole, kResidual>(values, out);
  });
}

}  // namespace

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
