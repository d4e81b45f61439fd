// Encoding for AVX2: blocks of 64 lanes. Shorter ones are left to the reference.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_encode_ops.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx2.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

// What eight values become: gcomp_encode_ops.h for AVX2. Masks are words of all ones or zeros.

// In each word of what the classifier gives: the level above the number of bits that are cut.
constexpr unsigned kLevelShift = 5;
constexpr std::uint32_t kCutMask = 31;

struct Classified8 {
  __m256i kept;   // bits as a decoder will see them
  __m256i level;  // 32 * level + bits cut
  __m256i some;   // mask: not +0
};

[[gnu::always_inline]] inline __m256i exponents_of(__m256i bits) noexcept {
  return _mm256_srli_epi32(_mm256_slli_epi32(bits, 1), kMantissaBits + 1);
}

// Sorts values by a rule. kWhole: nothing is cut.
template <Keep kKeep, bool kWhole>
class Classifier8 {
 public:
  [[gnu::always_inline]] explicit Classifier8(const Rule& rule) noexcept
      : per_level_(rule.step == 1 ? kThird : kSixth), step_(rule.step) {
    level_ = all_words(rule.level << kLevelShift | kCutBitsPerLevel * rule.level);
  }

  // `significance` may be null unless it decides.
  [[gnu::always_inline]] Classified8 operator()(__m256i bits, const float* significance) const noexcept {
    const __m256i zero = _mm256_setzero_si256();
    const __m256i exponent = exponents_of(bits);
    const __m256i flushed = _mm256_cmpeq_epi32(exponent, zero);
    if constexpr (kKeep == Keep::kEverything) {
      const __m256i none = _mm256_cmpeq_epi32(bits, zero);
      const __m256i tiny = _mm256_andnot_si256(none, flushed);
      return {bits, _mm256_and_si256(tiny, all_words(1U << kLevelShift)),
              _mm256_xor_si256(none, all_words(~0U))};
    } else {
      const __m256i normal = _mm256_xor_si256(flushed, all_words(~0U));
      if constexpr (kWhole) return {_mm256_and_si256(normal, bits), zero, normal};
      const __m256i cuttable =
          _mm256_andnot_si256(_mm256_cmpgt_epi32(exponent, all_words(kHighestCut)), normal);
      const __m256i level = _mm256_and_si256(cuttable, levels(exponent, significance));
      return {_mm256_and_si256(normal, rounded(bits, level)), level, normal};
    }
  }

 private:
  static constexpr std::uint32_t kThird = 43;  // distance * 43 / 128 is distance / 3, below 64
  static constexpr std::uint32_t kSixth = 22;  // distance * 22 / 128 is distance / 6, below 35

  [[gnu::always_inline]] __m256i levels(__m256i exponent, const float* significance) const noexcept {
    if constexpr (kKeep != Keep::kSignificance) return level_;
    const __m256i magnitude = _mm256_and_si256(load_words(significance), all_words(kMagnitudeMask));
    const __m256i seen = _mm256_srli_epi32(magnitude, kMantissaBits);
    __m256i distance = _mm256_sub_epi32(seen, _mm256_sub_epi32(exponent, all_words(1)));
    const __m256i special = _mm256_cmpeq_epi32(seen, all_words(255));
    if (_mm256_testz_si256(special, special) == 0) [[unlikely]] {
      const __m256i infinite = _mm256_cmpeq_epi32(magnitude, all_words(kExponentMask));
      distance = _mm256_blendv_epi8(distance, _mm256_and_si256(infinite, all_words(kFarDistance)), special);
    }
    distance =
        _mm256_min_epi32(_mm256_max_epi32(distance, _mm256_setzero_si256()), all_words(most_distance()));
    // Both products stay within 16 bits.
    const __m256i cuts = _mm256_srli_epi32(_mm256_mullo_epi16(distance, all_words(per_level_)), 7);
    const __m256i level = _mm256_mullo_epi16(cuts, all_words(step_));
    const __m256i cut = _mm256_add_epi32(level, _mm256_add_epi32(level, level));
    return _mm256_or_si256(_mm256_slli_epi32(level, kLevelShift), cut);
  }

  // The highest level begins there: 21 of 8 levels, 18 of 4.
  [[gnu::always_inline]] std::uint32_t most_distance() const noexcept {
    return kCutBitsPerLevel * ((kLevels - 1) / step_ * step_);
  }

  // To nearest, ties to even; a carry goes into the exponent.
  [[gnu::always_inline]] static __m256i rounded(__m256i bits, __m256i level) noexcept {
    const __m256i one = all_words(1);
    const __m256i cut = _mm256_and_si256(level, all_words(kCutMask));
    const __m256i low = _mm256_sub_epi32(_mm256_sllv_epi32(one, cut), one);
    const __m256i odd = _mm256_and_si256(_mm256_and_si256(_mm256_srlv_epi32(bits, cut), low), one);
    const __m256i half = _mm256_srli_epi32(low, 1);
    return _mm256_andnot_si256(low, _mm256_add_epi32(_mm256_add_epi32(bits, half), odd));
  }

  __m256i level_;  // where all have the same
  std::uint32_t per_level_;
  std::uint32_t step_;
};

// Eight of in + residual.
template <bool kResidual>
[[gnu::always_inline]] inline __m256i input_of(const Values& values, std::uint32_t at) noexcept {
  const __m256 in = _mm256_loadu_ps(values.in + at);
  if constexpr (!kResidual) return _mm256_castps_si256(in);
  return _mm256_castps_si256(_mm256_add_ps(in, _mm256_loadu_ps(values.residual + at)));
}

// Leaves in the residual what the cut took.
template <bool kResidual>
[[gnu::always_inline]] inline void keep_left_over(const Values& values, std::uint32_t at, __m256i bits,
                                                  __m256i kept) noexcept {
  if constexpr (!kResidual) return;
  const __m256i exponent = _mm256_and_si256(bits, all_words(kExponentMask));
  const __m256i infinite = _mm256_cmpeq_epi32(exponent, all_words(kExponentMask));
  const __m256 left = _mm256_sub_ps(_mm256_castsi256_ps(bits), _mm256_castsi256_ps(kept));
  _mm256_storeu_ps(values.residual + at, _mm256_andnot_ps(_mm256_castsi256_ps(infinite), left));
}

// The histogram: which of its counts the values of a line belong to.
struct Line {
  alignas(32) std::uint32_t of[kLineElements];
};

template <Keep kKeep, bool kWhole, bool kResidual>
void count_values(const Values& chunk, std::uint32_t* counts) noexcept {
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

void histogram(const Values& chunk, std::uint32_t* counts) {
  for_values(chunk, [&]<Keep kKeep, bool kWhole, bool kResidual>() {
    count_values<kKeep, kWhole, kResidual>(chunk, counts);
  });
}

constexpr Places kPlaces = make_places();

constexpr std::uint32_t kAhead = 1024;  // elements before the current stretch that are fetched early

// A block on its way out, as in the reference.
struct Writer {
  alignas(32) std::uint32_t codes[kMaxLanes] = {};
  alignas(32) std::uint32_t held[kMaxLanes];
  alignas(32) std::uint32_t mantissas[kMaxMantissaLanes] = {};
  alignas(32) std::uint32_t filled[kMaxMantissaLanes] = {};
  __m256i any;  // all kept bits, or-ed
};

struct Stretch {
  alignas(32) std::uint32_t kept[kMaxStretch];
  alignas(32) std::uint32_t slots[kMaxStretch];
  alignas(32) std::uint32_t entries[kMaxStretch];
};

// The words that `leave` names, brought together.
[[gnu::always_inline]] inline __m256i gathered(__m256i words, std::uint32_t leave) noexcept {
  return _mm256_permutevar8x32_epi32(words, places_of(kPlaces.gather[leave]));
}

// Sign and mantissa in the upper 24 bits.
[[gnu::always_inline]] inline __m256i upper_of(__m256i kept) noexcept {
  const __m256i sign = _mm256_and_si256(kept, all_words(kSignBit));
  const __m256i mantissa = _mm256_slli_epi32(_mm256_and_si256(kept, all_words(kMantissaMask)), 8);
  return _mm256_or_si256(sign, mantissa);
}

template <bool kEverything>
[[gnu::always_inline]] inline __m256i slots_of(const Classified8& values, __m256i base) noexcept {
  const __m256i row = _mm256_sub_epi32(exponents_of(values.kept), base);
  // 1 to kWindow.
  const __m256i within = _mm256_and_si256(_mm256_cmpgt_epi32(row, _mm256_setzero_si256()),
                                          _mm256_cmpgt_epi32(all_words(kEscapeSlot), row));
  const __m256i level = _mm256_andnot_si256(all_words(kCutMask), values.level);
  const __m256i slot = _mm256_blendv_epi8(all_words(kEscapeSlot), _mm256_or_si256(level, row), within);
  if constexpr (!kEverything) return _mm256_and_si256(values.some, slot);
  const __m256i tiny = _mm256_cmpgt_epi32(values.level, _mm256_setzero_si256());
  return _mm256_and_si256(values.some, _mm256_blendv_epi8(slot, all_words(kTinySlot), tiny));
}

// Classifies the values from `begin` on. Past the last one there is nothing, neither code nor mantissa.
template <Keep kKeep, bool kWhole, bool kResidual>
[[gnu::always_inline]] inline void classify_stretch(const Values& block,
                                                    const Classifier8<kKeep, kWhole>& classify,
                                                    const EncodeTable& table, std::uint32_t begin,
                                                    Writer& writer, Stretch& stretch) noexcept {
  const __m256i base = all_words(table.base);
#pragma GCC unroll 2
  for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
    const std::uint32_t from = begin + i;
    const __m256i bits = input_of<kResidual>(block, from);
    const Classified8 values =
        classify(bits, kKeep == Keep::kSignificance ? block.significance + from : nullptr);
    keep_left_over<kResidual>(block, from, bits, values.kept);
    store_words(stretch.kept + i, values.kept);
    store_words(stretch.slots + i, slots_of < kKeep == Keep::kEverything > (values, base));
    writer.any = _mm256_or_si256(writer.any, values.kept);
  }
}

[[gnu::always_inline]] inline void look_up(const EncodeTable& table, std::uint32_t count,
                                           Stretch& stretch) noexcept {
#pragma GCC unroll 16
  for (unsigned i = 0; i < kMaxStretch; ++i) stretch.entries[i] = table.entry[stretch.slots[i]];
  for (std::uint32_t i = count; i < kMaxStretch; ++i) stretch.entries[i] = 0;
}

// Values i to i + 7 of a stretch, in the lanes from `lane` on.
[[gnu::always_inline]] inline std::byte* push_mantissas(const Stretch& stretch, unsigned i, unsigned lane,
                                                        Writer& writer, std::byte* at) noexcept {
  const __m256i word_bits = all_words(kMantissaWordBits);
  const __m256i thirds = _mm256_srli_epi32(load_words(stretch.entries + i), kEntryThirdsShift);
  const __m256i width = _mm256_add_epi32(thirds, _mm256_add_epi32(thirds, thirds));
  const __m256i upper = upper_of(load_words(stretch.kept + i));
  const __m256i value = _mm256_srlv_epi32(upper, _mm256_sub_epi32(word_bits, width));
  const __m256i x = load_words(writer.mantissas + lane);
  const __m256i filled = load_words(writer.filled + lane);
  const __m256i sum = _mm256_add_epi32(filled, width);
  const __m256i rest = _mm256_and_si256(sum, all_words(kMantissaWordBits - 1));
  const __m256i older = _mm256_sllv_epi32(x, _mm256_sub_epi32(word_bits, filled));
  const __m256i words = _mm256_or_si256(older, _mm256_srlv_epi32(value, rest));
  const std::uint32_t leave = high_bits(_mm256_cmpgt_epi32(sum, all_words(kMantissaWordBits - 1)));
  store_words(at, gathered(words, leave));
  at += popcount(leave) * kMantissaWordBytes;
  store_words(writer.mantissas + lane, _mm256_or_si256(_mm256_sllv_epi32(x, width), value));
  store_words(writer.filled + lane, rest);
  return at;
}

[[gnu::always_inline]] inline std::byte* append_mantissas(const Stretch& stretch, unsigned i,
                                                          std::byte* at) noexcept {
  const __m256i thirds = _mm256_srli_epi32(load_words(stretch.entries + i), kEntryThirdsShift);
  const std::uint32_t some = high_bits(_mm256_cmpgt_epi32(thirds, _mm256_setzero_si256()));
  const __m256i upper = upper_of(load_words(stretch.kept + i));
  store_words(at, upper_to_three_bytes(gathered(upper, some)));
  at += popcount(some) * kSignMantissaBytes;
  return at;
}

// Two codes for each lane: that of row 0, and behind it that of row 1.
[[gnu::always_inline]] inline std::byte* push_codes(const Stretch& stretch, Writer& writer,
                                                    std::byte* at) noexcept {
  const __m256i length_mask = all_words(kEntryLengthMask);
  const __m256i code_mask = all_words(kEntryCodeMask);
  const __m256i word_bits = all_words(kWordBits);
#pragma GCC unroll 2
  for (unsigned lane = 0; lane < kMaxLanes; lane += kVectorWords) {
    const __m256i first = load_words(stretch.entries + lane);
    const __m256i second = load_words(stretch.entries + kMaxLanes + lane);
    const __m256i shift = _mm256_and_si256(first, length_mask);
    const __m256i length = _mm256_add_epi32(shift, _mm256_and_si256(second, length_mask));
    const __m256i low = _mm256_and_si256(_mm256_srli_epi32(first, kEntryCodeShift), code_mask);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi32(second, kEntryCodeShift), code_mask);
    const __m256i code = _mm256_or_si256(low, _mm256_sllv_epi32(high, shift));
    const __m256i x = load_words(writer.codes + lane);
    const __m256i held = load_words(writer.held + lane);
    const __m256i sum = _mm256_add_epi32(held, length);
    const __m256i leaves = _mm256_cmpgt_epi32(sum, all_words(2 * kWordBits - 1));
    const std::uint32_t leave = high_bits(leaves);
    const __m256i oldest =
        _mm256_and_si256(_mm256_srlv_epi32(x, _mm256_sub_epi32(held, word_bits)), all_words(0xFFFF));
    const __m256i words = gathered(oldest, leave);
    const __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), halves);
    at += popcount(leave) * kWordBytes;
    store_words(writer.codes + lane, _mm256_or_si256(_mm256_sllv_epi32(x, length), code));
    store_words(writer.held + lane, _mm256_sub_epi32(sum, _mm256_and_si256(leaves, word_bits)));
  }
  return at;
}

// Exponents of escaped values, in their order.
[[gnu::always_inline]] inline std::byte* append_escapes(const Stretch& stretch, const EncodeTable& table,
                                                        std::byte* at) noexcept {
  const __m256i escape = all_words(table.escape);
#pragma GCC unroll 4
  for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
    std::uint32_t left = high_bits(_mm256_cmpeq_epi32(load_words(stretch.entries + i), escape));
    for (; left != 0; left &= left - 1) [[unlikely]] {
      const std::uint32_t bits = stretch.kept[i + countr_zero(left)];
      *at++ = static_cast<std::byte>((bits & kMagnitudeMask) >> kMantissaBits);
    }
  }
  return at;
}

template <Keep kKeep, bool kWhole, bool kResidual>
[[gnu::always_inline]] inline std::byte* push_stretch(const Values& block,
                                                      const Classifier8<kKeep, kWhole>& classify,
                                                      const EncodeTable& table, std::uint32_t begin,
                                                      std::uint32_t count, Writer& writer,
                                                      std::byte* at) noexcept {
  Stretch stretch;
  classify_stretch<kKeep, kWhole, kResidual>(block, classify, table, begin, writer, stretch);
  look_up(table, count, stretch);
#pragma GCC unroll 2
  for (unsigned i = 0; i < kMaxStretch; i += kVectorWords) {
    if constexpr (kWhole) {
      at = append_mantissas(stretch, i, at);
    } else {
      at = push_mantissas(stretch, i, i % kMaxMantissaLanes, writer, at);
    }
  }
  at = push_codes(stretch, writer, at);
  return append_escapes(stretch, table, at);
}

void write_states(bool whole, const Writer& writer, std::byte* at) noexcept {
  for (unsigned lane = 0; lane < kMaxLanes; ++lane, at += kStateBytes) {
    const std::uint32_t end = 1U << writer.held[lane];
    store_le(at, end | (writer.codes[lane] & (end - 1)));
  }
  for (unsigned lane = 0; lane < kMaxMantissaLanes && !whole; ++lane, at += kStateBytes) {
    const std::uint32_t end = 1U << writer.filled[lane];
    store_le(at, end | (writer.mantissas[lane] & (end - 1)));
  }
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

template <Keep kKeep, bool kWhole, bool kResidual>
struct Encoder {
  Classifier8<kKeep, kWhole> classify;
  const EncodeTable& table;
  Writer writer;

  [[gnu::always_inline]] std::byte* push(const Values& block, std::uint32_t begin, std::uint32_t count,
                                         std::byte* at) noexcept {
    fetch_early<kResidual>(block, begin);
    return push_stretch<kKeep, kWhole, kResidual>(block, classify, table, begin, count, writer, at);
  }
};

template <Keep kKeep, bool kWhole, bool kResidual>
EncodedBlock encode_lanes(const Values& block, const EncodeTable& table, std::byte* out) noexcept {
  Encoder<kKeep, kWhole, kResidual> encoder{Classifier8<kKeep, kWhole>(block.rule), table, {}};
  Writer& writer = encoder.writer;
  for (std::uint32_t& held : writer.held) held = kWordBits;
  writer.any = _mm256_setzero_si256();
  std::byte* const at = encode_by<kKeep, kResidual>(block, encoder, out);
  write_states(kWhole, writer, at);
  return {static_cast<std::uint32_t>(at - out), _mm256_testz_si256(writer.any, writer.any) != 0};
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

void store_values(const Values& values, std::byte* out) {
  for_values(values, [&]<Keep kKeep, bool kWhole, bool kResidual>() {
    store_kept<kKeep, kWhole, kResidual>(values, out);
  });
}

}  // namespace

extern constexpr Kernels kKernels = {histogram, encode_block, store_values, decode_block, decode_stored};

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
