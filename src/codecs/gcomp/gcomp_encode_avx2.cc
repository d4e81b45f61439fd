// Encoding for AVX2: blocks of 64 lanes. Shorter ones are left to the reference.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/gcomp/gcomp_codes_avx2.h"
#include "codecs/gcomp/gcomp_encode_ops.h"
#include "codecs/gcomp/gcomp_lanes_avx2.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx2.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

// The histogram: which of its counts the values of a line belong to.
struct Line {
  alignas(32) std::uint32_t of[kLineElements];
};

constexpr std::uint32_t kAhead = 1024;  // elements before the current stretch that are fetched early

// What stays the same for all stretches of a block.
template <Keep kKeep, bool kWhole>
struct Coder {
  [[gnu::always_inline]] Coder(const Rule& rule, const SlotCodes& codes) noexcept
      : classify(rule),
        of_slot(codes),
        of_row(codes, rule.level),
        levels(rule),
        level(all_words(rule.level)),
        highest_cut(rule.precision.highest_cut) {}

  Classifier8<kKeep, kWhole> classify;
  const SlotCodes& of_slot;
  RowCodes of_row;
  Levels levels;
  __m256i level;  // where all have the same
  std::uint32_t highest_cut;
};

[[gnu::always_inline]] inline void look_up(const SlotCodes& codes, Stretch& stretch) noexcept {
#pragma GCC unroll 16
  for (unsigned i = 0; i < kMaxStretch; ++i) {
    std::uint32_t slot = stretch.slots[i];
    // Keeps compilers from making vectors of several, word by word.
    asm("" : "+r"(slot));
    stretch.entries[i] = codes.of[slot];
  }
}

// Classifies the values from `begin` on and looks up their codes.
template <Keep kKeep, bool kWhole, bool kResidual>
[[gnu::always_inline]] inline void code_each(const Coder<kKeep, kWhole>& coder, const Values& block,
                                             std::uint32_t begin, Writer& writer, Stretch& stretch) noexcept {
  const __m256i base = all_words(coder.of_slot.base);
  __m256i any = writer.any;
  for (unsigned i = 0; i < kMaxStretch; i += kBytesAtOnce) {
    __m256i slots[4];
#pragma GCC unroll 4
    for (unsigned nth = 0; nth < 4; ++nth) {
      const unsigned at = i + kVectorWords * nth;
      const std::uint32_t from = begin + at;
      const __m256i bits = input_of<kResidual>(block, from);
      const float* const significance = kKeep == Keep::kSignificance ? block.significance + from : nullptr;
      const Classified8 values = coder.classify(bits, significance);
      keep_left_over<kResidual>(block, from, bits, values.kept);
      store_words(stretch.kept + at, values.kept);
      any = _mm256_or_si256(any, values.kept);
      slots[nth] = slots_of < kKeep == Keep::kEverything > (values, base);
    }
    store_words(stretch.slots + i, packed<false>(slots[0], slots[1], slots[2], slots[3]));
  }
  writer.any = any;
  look_up(coder.of_slot, stretch);
}

// What is kept of a stretch of a whole chunk that isn't dense; gives tiny values their code.
template <Keep kKeep, bool kWhole>
void keep_whole(const Coder<kKeep, kWhole>& coder, const Values& block, std::uint32_t begin, Writer& writer,
                Stretch& stretch) noexcept {
  __m256i any = writer.any;
  for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
    const Classified8 values = coder.classify(input_of<false>(block, begin + i), nullptr);
    store_words(stretch.kept + i, values.kept);
    any = _mm256_or_si256(any, values.kept);
    if constexpr (kKeep != Keep::kEverything) continue;
    std::uint32_t tiny = high_bits(_mm256_cmpgt_epi32(values.level, _mm256_setzero_si256()));
    for (; tiny != 0; tiny &= tiny - 1) stretch.entries[i + countr_zero(tiny)] = coder.of_slot.of[kTinySlot];
  }
  writer.any = any;
}

// Values of one level, 32 at a time. False if some have another, and nothing is coded.
template <Keep kKeep, bool kWhole>
[[gnu::always_inline]] inline bool code_at_one_level(const Coder<kKeep, kWhole>& coder, const Values& block,
                                                     std::uint32_t begin, Writer& writer,
                                                     Stretch& stretch) noexcept {
  const void* values = block.in + begin;
  if constexpr (!kWhole) {
    __m256i any = writer.any;
    __m256i highest = _mm256_setzero_si256();
    __m256i tiny = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
      const __m256i bits = input_of<false>(block, begin + i);
      const __m256i exponent = _mm256_and_si256(bits, all_words(kExponentMask));
      const __m256i flushed = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
      __m256i kept = bits;
      if constexpr (kKeep == Keep::kEverything) {
        tiny = _mm256_or_si256(tiny, _mm256_and_si256(flushed, bits));
      } else {
        highest = _mm256_max_epi32(highest, exponent);
        kept = _mm256_andnot_si256(flushed, coder.levels.keep(bits, coder.level));
      }
      any = _mm256_or_si256(any, kept);
      store_words(stretch.kept + i, kept);
    }
    const __m256i above = _mm256_cmpgt_epi32(highest, all_words(coder.highest_cut << kMantissaBits));
    const __m256i other = _mm256_or_si256(above, tiny);
    if (_mm256_testz_si256(other, other) == 0) [[unlikely]]
      return false;
    writer.any = any;
    values = stretch.kept;
  }
  __m256i zeros = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (unsigned i = 0; i < kMaxStretch; i += kBytesAtOnce) {
    const __m256i exponents = packed_exponents<true>(static_cast<const std::byte*>(values) + i * kValueBytes);
    zeros = _mm256_or_si256(zeros, _mm256_cmpeq_epi8(exponents, _mm256_setzero_si256()));
    coder.of_row(exponents, stretch.entries + i);
  }
  if constexpr (!kWhole) return true;
  stretch.dense = _mm256_testz_si256(zeros, zeros) != 0;
  if (stretch.dense) [[likely]] {
    writer.any = all_words(~0U);
    stretch.values = values;
    return true;
  }
  stretch.values = stretch.kept;
  keep_whole(coder, block, begin, writer, stretch);
  return true;
}

// Values whose significances decide, 32 at a time. False if there are exceptions, and nothing is coded.
template <Keep kKeep, bool kWhole>
[[gnu::always_inline]] inline bool code_by_significance(const Coder<kKeep, kWhole>& coder,
                                                        const Values& block, std::uint32_t begin,
                                                        Writer& writer, Stretch& stretch) noexcept {
  alignas(32) std::int8_t levels[kMaxStretch];
  __m256i exceptions = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (unsigned i = 0; i < kMaxStretch; i += kBytesAtOnce) {
    const __m256i exponents = packed_exponents<false>(block.in + begin + i);
    const __m256i seen = packed_exponents<false>(block.significance + begin + i);
    store_words(levels + i, coder.levels(exponents, seen));
    const __m256i above = _mm256_subs_epu8(exponents, all_bytes(coder.highest_cut));
    exceptions = _mm256_or_si256(exceptions, _mm256_or_si256(above, _mm256_cmpeq_epi8(seen, all_bytes(255))));
  }
  if (_mm256_testz_si256(exceptions, exceptions) == 0) [[unlikely]]
    return false;
  __m256i any = writer.any;
#pragma GCC unroll 4
  for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
    const __m256i level = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(levels + i)));
    const __m256i kept = coder.levels.keep(input_of<false>(block, begin + i), level);
    any = _mm256_or_si256(any, kept);
    store_words(stretch.kept + i, kept);
  }
  writer.any = any;
#pragma GCC unroll 4
  for (unsigned i = 0; i < kMaxStretch; i += kBytesAtOnce) {
    const __m256i rows = rows_of(packed_exponents<false>(stretch.kept + i), coder.of_slot.base);
    const __m256i outside = _mm256_or_si256(_mm256_cmpeq_epi8(rows, _mm256_setzero_si256()),
                                            _mm256_cmpeq_epi8(rows, all_bytes(kEscapeSlot)));
    const __m256i level =
        _mm256_and_si256(_mm256_slli_epi16(load_words(levels + i), 5), all_bytes(kSlots - kRows));
    store_words(stretch.slots + i, _mm256_or_si256(rows, _mm256_andnot_si256(outside, level)));
  }
  look_up(coder.of_slot, stretch);
  return true;
}

template <Keep kKeep, bool kWhole, bool kResidual>
[[gnu::always_inline]] inline void code_stretch(const Coder<kKeep, kWhole>& coder, const Values& block,
                                                std::uint32_t begin, std::uint32_t count, Writer& writer,
                                                Stretch& stretch) noexcept {
  bool coded = false;
  if constexpr (!kResidual && kKeep == Keep::kSignificance) {
    coded = code_by_significance(coder, block, begin, writer, stretch);
  } else if constexpr (!kResidual) {
    coded = code_at_one_level(coder, block, begin, writer, stretch);
  }
  if (!coded) code_each<kKeep, kWhole, kResidual>(coder, block, begin, writer, stretch);
  stretch.last = count < kMaxStretch;
  for (std::uint32_t i = count; i < kMaxStretch; ++i) stretch.entries[i] = 0;
}

template <bool kWhole>
[[gnu::always_inline]] inline std::byte* write_stretch(const Stretch& stretch, std::uint16_t escape,
                                                       Writer& writer, std::byte* at) noexcept {
  if constexpr (kWhole) {
    at = append_mantissas(stretch, at);
  } else {
    at = push_mantissas(stretch, writer, at);
  }
  if (stretch.last) [[unlikely]] {
    at = push_codes<true>(stretch, writer, at);
  } else {
    at = push_codes<false>(stretch, writer, at);
  }
  if (has_escapes(stretch, escape)) [[unlikely]]
    at = append_escapes(stretch, escape, at);
  return at;
}

template <bool kResidual>
[[gnu::always_inline]] inline void fetch_early(const Values& block, std::uint32_t begin) noexcept {
  if (begin < kAhead) return;
  for (unsigned i = 0; i < kMaxStretch; i += 16) {
    _mm_prefetch(reinterpret_cast<const char*>(block.in + begin - kAhead + i), _MM_HINT_T0);
    if (block.significance != nullptr) {
      _mm_prefetch(reinterpret_cast<const char*>(block.significance + begin - kAhead + i), _MM_HINT_T0);
    }
    if constexpr (kResidual) {
      _mm_prefetch(reinterpret_cast<const char*>(block.residual + begin - kAhead + i), _MM_HINT_T0);
    }
  }
}

// Writes each stretch when the next one has been coded: a vector can't be loaded at once from where its
// numbers were stored one by one.
template <Keep kKeep, bool kWhole, bool kResidual>
struct Encoder {
  Coder<kKeep, kWhole> coder;
  Writer writer;
  Stretch stretches[2];
  std::uint32_t coded = 0;

  [[gnu::always_inline]] std::byte* push(const Values& block, std::uint32_t begin, std::uint32_t count,
                                         std::byte* at) noexcept {
    fetch_early<kResidual>(block, begin);
    code_stretch<kKeep, kWhole, kResidual>(coder, block, begin, count, writer, stretches[coded % 2]);
    if (coded++ == 0) [[unlikely]]
      return at;
    return write_stretch<kWhole>(stretches[coded % 2], coder.of_slot.escape, writer, at);
  }

  [[gnu::always_inline]] std::byte* finish(std::byte* at) noexcept {
    at = write_stretch<kWhole>(stretches[(coded + 1) % 2], coder.of_slot.escape, writer, at);
    write_states(kWhole, writer, at);
    return at;
  }
};

struct Coding {
  template <Keep kKeep, bool kWhole, bool kResidual>
  static void count(const Values& chunk, std::uint32_t* counts) noexcept {
    const Classifier8<kKeep, kWhole> classify(chunk.rule);
    count_by<kKeep>(
        chunk,
        [&](std::uint32_t begin) {
          Line index;
#pragma GCC unroll 2
          for (std::uint32_t i = 0; i < kLineElements; i += kVectorWords) {
            const float* const significance =
                kKeep == Keep::kSignificance ? chunk.significance + begin + i : nullptr;
            const Classified8 values = classify(input_of<kResidual>(chunk, begin + i), significance);
            const __m256i level = _mm256_slli_epi32(_mm256_srli_epi32(values.level, kLevelShift), 8);
            store_words(index.of + i, _mm256_or_si256(level, exponents_of(values.kept)));
          }
          return index;
        },
        counts);
  }

  template <Keep kKeep, bool kWhole, bool kResidual>
  static EncodedBlock encode(const Values& block, const EncodeTable& table, std::byte* out) noexcept {
    SlotCodes codes;
    make_codes(table, codes);
    Encoder<kKeep, kWhole, kResidual> encoder{{block.rule, codes}, {}, {}};
    encoder.writer.any = _mm256_setzero_si256();
    encoder.writer.step = all_words(block.rule.precision.step);
    std::byte* at = encode_by<kKeep, kResidual>(block, encoder, out);
    at = encoder.finish(at);
    const __m256i any = encoder.writer.any;
    return {static_cast<std::uint32_t>(at - out), _mm256_testz_si256(any, any) != 0};
  }

  template <Keep kKeep, bool kWhole, bool kResidual>
  static void store(const Values& values, std::byte* out) noexcept {
    const Classifier8<kKeep, kWhole> classify(values.rule);
    const std::uint32_t full = values.count / kVectorWords * kVectorWords;
    for (std::uint32_t at = 0; at < full; at += kVectorWords) {
      const __m256i bits = input_of<kResidual>(values, at);
      const float* const significance = kKeep == Keep::kSignificance ? values.significance + at : nullptr;
      const Classified8 classified = classify(bits, significance);
      keep_left_over<kResidual>(values, at, bits, classified.kept);
      store_words(out + at * kValueBytes, classified.kept);
    }
    kernels_for(TargetId::kReference).store_values(rest_of(values, full), out + full * kValueBytes);
  }
};

}  // namespace

extern constexpr Kernels kKernels = {
    histogram<Coding>, encode_block<Coding>, store_values<Coding>, decode_block, nullptr, decode_stored};

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
