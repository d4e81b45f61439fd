// Encoding for AVX-512 (F, BW, DQ, VL): blocks of 64 lanes. Shorter ones are left to the reference.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_classify_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kAhead = 1024;  // elements before the current stretch that are fetched early

// A block on its way out, as in the reference. No function that isn't inlined gets its address: so it stays
// in registers, which bytes that are written can't change.
struct Writer {
  __m512i codes[4];
  __m512i held[4];
  __m512i mantissas;
  __m512i filled;
  __m512i any;  // all kept bits, or-ed
  std::byte* at = nullptr;
};

// Half a row of 32 values: low halves of words belong to the first sixteen, high halves to the others.
struct Pair {
  __m512i entries;
  __mmask32 escapes = 0;
};

[[gnu::always_inline]] inline __m512i low_halves(__m512i pair) noexcept {
  return _mm512_and_si512(pair, _mm512_set1_epi32(0xFFFF));
}

[[gnu::always_inline]] inline __m512i high_halves(__m512i pair) noexcept {
  return _mm512_srli_epi32(pair, 16);
}

// Appends the words that `leave` names, of 32 or of 16 bits.
[[gnu::always_inline]] inline void append_words(__mmask16 leave, __m512i words, Writer& writer) noexcept {
  _mm512_storeu_si512(writer.at, _mm512_maskz_compress_epi32(leave, words));
  writer.at += popcount(leave) * kMantissaWordBytes;
}

[[gnu::always_inline]] inline void append_half_words(__mmask16 leave, __m512i words,
                                                     Writer& writer) noexcept {
  const __m256i halves = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(leave, words));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(writer.at), halves);
  writer.at += popcount(leave) * kWordBytes;
}

// `upper`: signs and mantissas in the upper bits, of which `width` are kept.
[[gnu::always_inline]] inline void push_mantissas(__m512i upper, __m512i width, Writer& writer) noexcept {
  const __m512i word_bits = _mm512_set1_epi32(kMantissaWordBits);
  const __m512i value = _mm512_srlv_epi32(upper, _mm512_sub_epi32(word_bits, width));
  const __m512i sum = _mm512_add_epi32(writer.filled, width);
  const __m512i rest = _mm512_and_si512(sum, _mm512_set1_epi32(kMantissaWordBits - 1));
  const __m512i older = _mm512_sllv_epi32(writer.mantissas, _mm512_sub_epi32(word_bits, writer.filled));
  const __mmask16 leave = _mm512_cmpge_epu32_mask(sum, word_bits);
  append_words(leave, _mm512_or_si512(older, _mm512_srlv_epi32(value, rest)), writer);
  writer.mantissas = _mm512_or_si512(_mm512_sllv_epi32(writer.mantissas, width), value);
  writer.filled = rest;
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

[[gnu::always_inline]] inline __m512i slots_of(const Classified16& values, __m512i base,
                                               bool everything) noexcept {
  const __m512i escape = _mm512_set1_epi32(kEscapeSlot);
  const __m512i row = _mm512_sub_epi32(exponents_of(values.kept), base);
  const __mmask16 within =
      _mm512_cmplt_epu32_mask(_mm512_sub_epi32(row, _mm512_set1_epi32(1)), _mm512_set1_epi32(kWindow));
  // Where a row is within the window: the row below the level.
  const __m512i slot = _mm512_mask_ternarylogic_epi32(escape, within, row, values.level, 0xCA);
  if (!everything) return _mm512_maskz_mov_epi32(values.some, slot);
  const __mmask16 tiny = _mm512_test_epi32_mask(values.level, values.level);
  return _mm512_maskz_mov_epi32(values.some, _mm512_mask_set1_epi32(slot, tiny, kTinySlot));
}

// Of each lane two codes: of entries in row 0, and behind them in row 1.
[[gnu::always_inline]] inline void push_codes(const Pair& first, const Pair& second, unsigned lanes,
                                              Writer& writer) noexcept {
  const __m512i length_mask = _mm512_set1_epi16(kEntryLengthMask);
  const __m512i code_mask = _mm512_set1_epi16(kEntryCodeMask);
  const __m512i shift = _mm512_and_si512(first.entries, length_mask);
  const __m512i length = _mm512_add_epi16(shift, _mm512_and_si512(second.entries, length_mask));
  const __m512i low = _mm512_and_si512(_mm512_srli_epi16(first.entries, kEntryCodeShift), code_mask);
  const __m512i high = _mm512_and_si512(_mm512_srli_epi16(second.entries, kEntryCodeShift), code_mask);
  const __m512i code = _mm512_or_si512(low, _mm512_sllv_epi16(high, shift));
  const __m512i word_bits = _mm512_set1_epi32(kWordBits);
#pragma GCC unroll 2
  for (unsigned half = 0; half < 2; ++half) {
    __m512i& x = writer.codes[lanes + half];
    __m512i& held = writer.held[lanes + half];
    const __m512i bits = half == 0 ? low_halves(length) : high_halves(length);
    const __m512i sum = _mm512_add_epi32(held, bits);
    const __mmask16 leave = _mm512_cmpge_epu32_mask(sum, _mm512_set1_epi32(2 * kWordBits));
    append_half_words(leave, _mm512_srlv_epi32(x, _mm512_sub_epi32(held, word_bits)), writer);
    x = _mm512_or_si512(_mm512_sllv_epi32(x, bits), half == 0 ? low_halves(code) : high_halves(code));
    held = _mm512_mask_sub_epi32(sum, leave, sum, word_bits);
  }
}

// Exponents of escaped values, in their order; `escapes` as in Pair. Returns where they end.
std::byte* append_escapes(const std::uint32_t (&escapes)[4], const std::uint32_t* kept,
                          std::byte* at) noexcept {
  for (unsigned i = 0; i < 4; ++i) {
    std::uint32_t left = _pext_u32(escapes[i], 0x55555555U) | _pext_u32(escapes[i], 0xAAAAAAAAU) << 16;
    for (; left != 0; left &= left - 1) {
      const std::uint32_t bits = kept[32 * i + countr_zero(left)];
      *at++ = static_cast<std::byte>((bits & kMagnitudeMask) >> kMantissaBits);
    }
  }
  return at;
}

// What stays the same for all stretches of a block.
template <Keep kKeep, bool kWhole>
struct Coder {
  const Values& block;
  Classifier16<kKeep, kWhole> classify;
  LookUp table;
  __m512i base;
  __m512i escape;
};

[[gnu::always_inline]] inline void fetch_early(const float* values, std::uint32_t at) noexcept {
  if (at >= kAhead) _mm_prefetch(reinterpret_cast<const char*>(values + at - kAhead), _MM_HINT_T0);
}

// Codes the 32 values from `at` on: leaves their entries, writes their mantissas.
template <Keep kKeep, bool kWhole, bool kResidual, bool kTail>
[[gnu::always_inline]] inline Pair push_pair(const Coder<kKeep, kWhole>& coder, std::uint32_t at,
                                             std::uint32_t* kept, Writer& writer) noexcept {
  const Values& block = coder.block;
  __m512i slots[2];
  __m512i upper[2];
  __mmask16 some[2];
  __mmask16 present[2];
#pragma GCC unroll 2
  for (unsigned i = 0; i < 2; ++i) {
    const std::uint32_t from = at + 16 * i;
    present[i] = kTail ? first_lanes(block.count, from) : 0xFFFF;
    const __m512i bits = input_of<kResidual>(block, from, present[i]);
    const float* const significance = kKeep == Keep::kSignificance ? block.significance + from : nullptr;
    const Classified16 values = coder.classify(bits, significance, present[i]);
    keep_left_over<kResidual>(block, from, present[i], bits, values.kept);
    _mm512_store_si512(kept + 16 * i, values.kept);
    writer.any = _mm512_or_si512(writer.any, values.kept);
    slots[i] = slots_of(values, coder.base, kKeep == Keep::kEverything);
    upper[i] = upper_of(values.kept);
    some[i] = values.some & present[i];
    fetch_early(block.in, from);
    if constexpr (kKeep == Keep::kSignificance) fetch_early(block.significance, from);
    if constexpr (kResidual) fetch_early(block.residual, from);
  }
  Pair pair;
  pair.entries = look_up(coder.table, _mm512_or_si512(slots[0], _mm512_slli_epi32(slots[1], 16)));
  if constexpr (kTail) {
    const __mmask32 both = _pdep_u32(present[0], 0x55555555U) | _pdep_u32(present[1], 0xAAAAAAAAU);
    pair.entries = _mm512_maskz_mov_epi16(both, pair.entries);
  }
  pair.escapes = _mm512_cmpeq_epi16_mask(pair.entries, coder.escape);
  if constexpr (kWhole) {
    append_mantissas(upper[0], some[0], writer);
    append_mantissas(upper[1], some[1], writer);
  } else {
    const __m512i widths = _mm512_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21, 24, 0, 0, 0, 0, 0, 0, 0);
    const __m512i low = _mm512_srli_epi32(pair.entries, kEntryThirdsShift);  // only 4 bits are looked at
    const __m512i high = _mm512_srli_epi32(pair.entries, 16 + kEntryThirdsShift);
    push_mantissas(upper[0], _mm512_permutexvar_epi32(low, widths), writer);
    push_mantissas(upper[1], _mm512_permutexvar_epi32(high, widths), writer);
  }
  return pair;
}

template <Keep kKeep, bool kWhole, bool kResidual, bool kTail>
[[gnu::always_inline]] inline void push_stretch(const Coder<kKeep, kWhole>& coder, std::uint32_t begin,
                                                Writer& writer) noexcept {
  alignas(64) std::uint32_t kept[kMaxStretch];
  Pair pairs[2][2];
#pragma GCC unroll 4
  for (unsigned i = 0; i < 4; ++i) {
    pairs[i / 2][i % 2] =
        push_pair<kKeep, kWhole, kResidual, kTail>(coder, begin + 32 * i, kept + 32 * i, writer);
  }
  push_codes(pairs[0][0], pairs[1][0], 0, writer);
  push_codes(pairs[0][1], pairs[1][1], 2, writer);
  const std::uint32_t escapes[4] = {pairs[0][0].escapes, pairs[0][1].escapes, pairs[1][0].escapes,
                                    pairs[1][1].escapes};
  if ((escapes[0] | escapes[1] | escapes[2] | escapes[3]) != 0) [[unlikely]]
    writer.at = append_escapes(escapes, kept, writer.at);
}

void write_states(bool whole, Writer writer) noexcept {
  const __m512i one = _mm512_set1_epi32(1);
  const auto append = [&](__m512i x, __m512i held) {
    const __m512i end = _mm512_sllv_epi32(one, held);
    const __m512i bits = _mm512_and_si512(x, _mm512_sub_epi32(end, one));
    _mm512_storeu_si512(writer.at, _mm512_or_si512(end, bits));
    writer.at += 16 * kStateBytes;
  };
  for (unsigned i = 0; i < 4; ++i) append(writer.codes[i], writer.held[i]);
  if (!whole) append(writer.mantissas, writer.filled);
}

template <Keep kKeep, bool kWhole, bool kResidual>
EncodedBlock encode_lanes(const Values& block, const EncodeTable& table, std::byte* out) noexcept {
  const Coder<kKeep, kWhole> coder{block, Classifier16<kKeep, kWhole>(block.rule), load_look_up(table.entry),
                                   _mm512_set1_epi32(static_cast<int>(table.base)),
                                   _mm512_set1_epi16(static_cast<short>(table.escape))};
  Writer writer;
  for (unsigned i = 0; i < 4; ++i) {
    writer.codes[i] = _mm512_setzero_si512();
    writer.held[i] = _mm512_set1_epi32(kWordBits);
  }
  writer.mantissas = _mm512_setzero_si512();
  writer.filled = _mm512_setzero_si512();
  writer.any = _mm512_setzero_si512();
  writer.at = out;
  std::uint32_t begin = block.count / kMaxStretch * kMaxStretch;
  if (begin < block.count) push_stretch<kKeep, kWhole, kResidual, true>(coder, begin, writer);
  while (begin > 0) {
    begin -= kMaxStretch;
    push_stretch<kKeep, kWhole, kResidual, false>(coder, begin, writer);
  }
  const auto bytes = static_cast<std::uint32_t>(writer.at - out);
  write_states(kWhole, writer);
  return {bytes, _mm512_test_epi32_mask(writer.any, writer.any) == 0};
}

template <Keep kKeep, bool kWhole>
EncodedBlock encode_by(const Values& block, const EncodeTable& table, std::byte* out) noexcept {
  return block.residual != nullptr ? encode_lanes<kKeep, kWhole, true>(block, table, out)
                                   : encode_lanes<kKeep, kWhole, false>(block, table, out);
}

EncodedBlock encode_block(const Values& block, const EncodeTable& table, std::byte* out) {
  if (lanes_for(block.count) < kMaxLanes) {
    return kernels_for(TargetId::kReference).encode_block(block, table, out);
  }
  switch (block.rule.keep) {
    case Keep::kLevel:
      return block.rule.whole() ? encode_by<Keep::kLevel, true>(block, table, out)
                                : encode_by<Keep::kLevel, false>(block, table, out);
    case Keep::kSignificance: return encode_by<Keep::kSignificance, false>(block, table, out);
    case Keep::kEverything: return encode_by<Keep::kEverything, true>(block, table, out);
  }
  return {};
}

template <Keep kKeep, bool kWhole, bool kResidual>
void store_kept(const Values& values, std::byte* out) noexcept {
  const Classifier16<kKeep, kWhole> classify(values.rule);
  for (std::uint32_t at = 0; at < values.count; at += 16) {
    const __mmask16 present = first_lanes(values.count, at);
    const __m512i bits = input_of<kResidual>(values, at, present);
    const float* const significance = kKeep == Keep::kSignificance ? values.significance + at : nullptr;
    const Classified16 classified = classify(bits, significance, present);
    keep_left_over<kResidual>(values, at, present, bits, classified.kept);
    _mm512_mask_storeu_epi32(out + at * kValueBytes, present, classified.kept);
  }
}

template <Keep kKeep, bool kWhole>
void store_by(const Values& values, std::byte* out) noexcept {
  return values.residual != nullptr ? store_kept<kKeep, kWhole, true>(values, out)
                                    : store_kept<kKeep, kWhole, false>(values, out);
}

void store_values(const Values& values, std::byte* out) {
  switch (values.rule.keep) {
    case Keep::kLevel:
      return values.rule.whole() ? store_by<Keep::kLevel, true>(values, out)
                                 : store_by<Keep::kLevel, false>(values, out);
    case Keep::kSignificance: return store_by<Keep::kSignificance, false>(values, out);
    case Keep::kEverything: return store_by<Keep::kEverything, true>(values, out);
  }
}

}  // namespace

extern constexpr Kernels kKernels = {histogram, encode_block, store_values, decode_block, decode_stored};

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
