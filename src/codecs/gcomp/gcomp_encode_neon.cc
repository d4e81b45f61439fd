// Encoding for NEON: blocks of 64 lanes. Shorter ones are left to the reference.
#include <cstddef>
#include <cstdint>

#include <arm_neon.h>

#include "base/bit_functions.h"
#include "codecs/gcomp/gcomp_encode_ops.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_neon.h"
#include "codecs/kernels/gathered_neon.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

// What sixteen values become: gcomp_encode_ops.h for NEON. Bytes are in columns; masks are bytes of all
// ones or zeros.

struct Classified16 {
  Words kept;            // bits as a decoder will see them
  uint8x16_t exponents;  // of these
  uint8x16_t levels;     // of a tiny value that is kept: 1
  uint8x16_t some;       // mask: not +0
};

[[gnu::always_inline]] inline Words& load_bits(const float* from, Words& bits) noexcept {
#pragma GCC unroll 4
  for (unsigned v = 0; v < kVectors; ++v) {
    bits[v] = vreinterpretq_u32_f32(vld1q_f32(from + v * kVectorWords));
  }
  return bits;
}

// Sorts values by a rule. kWhole: nothing is cut, and signs and mantissas are in bytes.
template <Keep kKeep, bool kWhole>
class Classifier16 {
 public:
  [[gnu::always_inline]] explicit Classifier16(const Rule& rule) noexcept {
    level_ = vdupq_n_u8(static_cast<std::uint8_t>(rule.level));
    unused_ = vdupq_n_u8(static_cast<std::uint8_t>(rule.precision.unused));
    step_ = vdupq_n_u8(static_cast<std::uint8_t>(rule.precision.step));
    highest_cut_ = vdupq_n_u8(static_cast<std::uint8_t>(rule.precision.highest_cut));
    alignas(16) std::uint8_t of_distance[kFarDistance + 1];
    for (std::int32_t distance = 0; distance <= kFarDistance; ++distance) {
      of_distance[distance] = static_cast<std::uint8_t>(significance_level(distance, rule));
    }
    of_distance_ = {{vld1q_u8(of_distance), vld1q_u8(of_distance + kTogether)}};
  }

  // `significance` may be null unless it decides.
  [[gnu::always_inline]] Classified16 operator()(const Words& bits,
                                                 const float* significance) const noexcept {
    Classified16 values{};
    values.exponents = exponents_of(bits);
    const uint8x16_t flushed = vceqzq_u8(values.exponents);
    if constexpr (kKeep == Keep::kEverything) {
      Words none;
#pragma GCC unroll 4
      for (unsigned v = 0; v < kVectors; ++v) {
        values.kept[v] = bits[v];
        none[v] = vceqzq_u32(bits[v]);
      }
      values.some = vmvnq_u8(low_bytes(none));
      values.levels = vandq_u8(vandq_u8(flushed, values.some), vdupq_n_u8(1));
    } else if constexpr (kWhole) {
#pragma GCC unroll 4
      for (unsigned v = 0; v < kVectors; ++v) {
        values.kept[v] = vandq_u32(bits[v], vtstq_u32(bits[v], vdupq_n_u32(kExponentMask)));
      }
      values.some = vmvnq_u8(flushed);
      values.levels = vdupq_n_u8(0);
    } else {
      const uint8x16_t cuttable = vcleq_u8(values.exponents, highest_cut_);
      const uint8x16_t level = levels(values.exponents, significance);
      values.levels = vbicq_u8(vandq_u8(level, cuttable), flushed);
      values.some = vmvnq_u8(flushed);
      // Flushed values lose all bits.
      const uint8x16_t cut = vmlaq_u8(unused_, values.levels, step_);
      round(bits, vbslq_u8(flushed, vdupq_n_u8(32), cut), values.kept);
      values.exponents = exponents_of(values.kept);
    }
    return values;
  }

 private:
  [[gnu::always_inline]] uint8x16_t levels(uint8x16_t exponents, const float* significance) const noexcept {
    if constexpr (kKeep != Keep::kSignificance) return level_;
    Words numbers;
    const uint8x16_t seen = exponents_of(load_bits(significance, numbers));
    uint8x16_t distance = vqsubq_u8(seen, vsubq_u8(exponents, vdupq_n_u8(1)));
    if (vmaxvq_u8(seen) == 255) [[unlikely]]
      distance = vbslq_u8(vceqq_u8(seen, vdupq_n_u8(255)), of_special(numbers), distance);
    return vqtbl2q_u8(of_distance_, vminq_u8(distance, vdupq_n_u8(kFarDistance)));
  }

  // An infinite significance is as far as can be, NaN has no distance.
  [[gnu::always_inline]] static uint8x16_t of_special(const Words& numbers) noexcept {
    Words infinite;
#pragma GCC unroll 4
    for (unsigned v = 0; v < kVectors; ++v) {
      const uint32x4_t magnitude = vandq_u32(numbers[v], vdupq_n_u32(kMagnitudeMask));
      infinite[v] = vceqq_u32(magnitude, vdupq_n_u32(kExponentMask));
    }
    return vandq_u8(low_bytes(infinite), vdupq_n_u8(kFarDistance));
  }

  // To nearest, ties to even; a carry goes into the exponent. `cut`: how many bits, up to 32.
  [[gnu::always_inline]] static void round(const Words& bits, uint8x16_t cut, Words& kept) noexcept {
    const uint8x16_t down = negated(cut);
    const uint8x16_t below = vsubq_u8(cut, vdupq_n_u8(32));
#pragma GCC unroll 4
    for (unsigned v = 0; v < kVectors; ++v) {
      const uint32x4_t low = shifted(vdupq_n_u32(~0U), below, v);
      const uint32x4_t odd = vandq_u32(vandq_u32(shifted(bits[v], down, v), low), vdupq_n_u32(1));
      kept[v] = vbicq_u32(vaddq_u32(vsraq_n_u32(bits[v], low, 1), odd), low);
    }
  }

  uint8x16_t level_;  // where all have the same
  uint8x16_t highest_cut_;
  uint8x16_t unused_;  // of the Precision
  uint8x16_t step_;
  uint8x16x2_t of_distance_;
};

// Sixteen of in + residual.
template <bool kResidual>
[[gnu::always_inline]] inline void input_of(const Values& values, std::uint32_t at, Words& bits) noexcept {
#pragma GCC unroll 4
  for (unsigned v = 0; v < kVectors; ++v) {
    const float32x4_t in = vld1q_f32(values.in + at + v * kVectorWords);
    bits[v] = vreinterpretq_u32_f32(
        kResidual ? vaddq_f32(in, vld1q_f32(values.residual + at + v * kVectorWords)) : in);
  }
}

// Leaves in the residual what the cut took.
template <bool kResidual>
[[gnu::always_inline]] inline void keep_left_over(const Values& values, std::uint32_t at, const Words& bits,
                                                  const Words& kept) noexcept {
  if constexpr (!kResidual) return;
  const uint32x4_t special = vdupq_n_u32(kExponentMask);
#pragma GCC unroll 4
  for (unsigned v = 0; v < kVectors; ++v) {
    const uint32x4_t infinite = vceqq_u32(vandq_u32(bits[v], special), special);
    const float32x4_t left = vsubq_f32(vreinterpretq_f32_u32(bits[v]), vreinterpretq_f32_u32(kept[v]));
    vst1q_f32(values.residual + at + v * kVectorWords,
              vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(left), infinite)));
  }
}

// The histogram: which of its counts the values of a line belong to.
struct Indices {
  alignas(16) std::uint16_t of[kLineElements];
};

// The first plane holds an entry's code length and, above it, the bits of sign and mantissa in steps; the
// second holds the code.
constexpr unsigned kStepsShift = 4;

[[gnu::always_inline]] inline std::uint8_t size_of(unsigned entry) noexcept {
  return static_cast<std::uint8_t>((entry & kEntryLengthMask) | entry >> kEntryStepsShift << kStepsShift);
}

[[gnu::always_inline]] inline std::uint8_t code_of(unsigned entry) noexcept {
  return static_cast<std::uint8_t>(entry >> kEntryCodeShift & kEntryCodeMask);
}

// A block on its way out, as in the reference. Bytes in columns.
struct Writer {
  alignas(16) std::uint32_t codes[kMaxLanes] = {};
  alignas(16) std::uint8_t held[kMaxLanes];
  alignas(16) std::uint32_t mantissas[kMaxMantissaLanes] = {};
  alignas(16) std::uint8_t filled[kMaxMantissaLanes] = {};
  uint32x4_t any;   // all kept bits, or-ed
  uint8x16_t step;  // of the values' Precision
};

// Bytes in columns of sixteen.
struct Stretch {
  alignas(16) std::uint32_t kept[kMaxStretch];
  alignas(16) std::uint8_t slots[kMaxStretch];
  alignas(16) std::uint8_t sizes[kMaxStretch];
  alignas(16) std::uint8_t codes[kMaxStretch];
};

// Sign and mantissa in the upper 24 bits.
[[gnu::always_inline]] inline uint32x4_t upper_of(uint32x4_t kept) noexcept {
  return vsriq_n_u32(kept, vshlq_n_u32(kept, 9), 1);
}

template <bool kEverything, bool kWhole>
[[gnu::always_inline]] inline uint8x16_t slots_of(const Classified16& values, std::uint32_t base) noexcept {
  const uint8x16_t row = vqsubq_u8(values.exponents, vdupq_n_u8(static_cast<std::uint8_t>(base)));
  const uint8x16_t within = vcltq_u8(vsubq_u8(row, vdupq_n_u8(1)), vdupq_n_u8(kWindow));
  const uint8x16_t leveled = kWhole ? row : vsliq_n_u8(row, values.levels, 5);
  const uint8x16_t slot = vbslq_u8(within, leveled, vdupq_n_u8(kEscapeSlot));
  if constexpr (!kEverything) return vandq_u8(slot, values.some);
  const uint8x16_t tiny = vtstq_u8(values.levels, values.levels);
  return vandq_u8(vbslq_u8(tiny, vdupq_n_u8(kTinySlot), slot), values.some);
}

// Classifies the values from `begin` on.
template <Keep kKeep, bool kWhole, bool kResidual>
[[gnu::always_inline]] inline void classify_stretch(const Values& block,
                                                    const Classifier16<kKeep, kWhole>& classify,
                                                    std::uint32_t base, std::uint32_t begin, Writer& writer,
                                                    Stretch& stretch) noexcept {
  for (unsigned i = 0; i < kMaxStretch; i += kTogether) {
    const std::uint32_t from = begin + i;
    Words bits;
    input_of<kResidual>(block, from, bits);
    const Classified16 values =
        classify(bits, kKeep == Keep::kSignificance ? block.significance + from : nullptr);
    keep_left_over<kResidual>(block, from, bits, values.kept);
#pragma GCC unroll 4
    for (unsigned v = 0; v < kVectors; ++v) {
      vst1q_u32(stretch.kept + i + v * kVectorWords, values.kept[v]);
      writer.any = vorrq_u32(writer.any, values.kept[v]);
    }
    store_bytes(stretch.slots + i, slots_of < kKeep == Keep::kEverything, kWhole > (values, base));
  }
}

// Past the last of `count` values there is nothing, neither code nor mantissa.
template <bool kOne>
[[gnu::always_inline]] inline void look_up_stretch(const Planes& planes, std::uint32_t count,
                                                   Stretch& stretch) noexcept {
  // Where nothing is cut there is one level, and one slot above it.
  constexpr unsigned kQuarters = kOne ? 1 : 4;
  for (unsigned row = 0; row < kMaxStretch; row += kMaxLanes) {
    uint8x16_t slots[kGroups];
    uint8x16_t sizes[kGroups];
    uint8x16_t codes[kGroups];
#pragma GCC unroll 4
    for (unsigned g = 0; g < kGroups; ++g) slots[g] = load_bytes(stretch.slots + row + g * kTogether);
    look_up<kQuarters>(planes, slots, sizes, codes);
#pragma GCC unroll 4
    for (unsigned g = 0; g < kGroups; ++g) {
      store_bytes(stretch.sizes + row + g * kTogether, sizes[g]);
      store_bytes(stretch.codes + row + g * kTogether, codes[g]);
    }
  }
  for (std::uint32_t i = count / kTogether * kTogether; i < kMaxStretch; i += kTogether) {
    const uint8x16_t present = first_values(i < count ? count - i : 0);
    store_bytes(stretch.sizes + i, vandq_u8(load_bytes(stretch.sizes + i), present));
    store_bytes(stretch.codes + i, vandq_u8(load_bytes(stretch.codes + i), present));
  }
}

// The chosen of eight words.
[[gnu::always_inline]] inline std::byte* append_words(const uint32x4_t& first, const uint32x4_t& second,
                                                      const Chosen& chosen, unsigned half,
                                                      std::byte* at) noexcept {
  const uint8x16x2_t words = {{vreinterpretq_u8_u32(first), vreinterpretq_u8_u32(second)}};
  const uint8x16_t place = vshlq_n_u8(gathered(chosen.mask(half)), 2);
  const uint8x16x2_t places = places_of_words(places_of_halves(place).val[0]);
  store_bytes(at, vqtbl2q_u8(words, places.val[0]));
  store_bytes(at + kTogether, vqtbl2q_u8(words, places.val[1]));
  return at + chosen.count(half) * kMantissaWordBytes;
}

// Values i to i + 15 of a stretch.
[[gnu::always_inline]] inline std::byte* push_mantissas(const Stretch& stretch, unsigned i, Writer& writer,
                                                        std::byte* at) noexcept {
  const uint8x16_t steps = vshrq_n_u8(load_bytes(stretch.sizes + i), kStepsShift);
  const uint8x16_t width = vmulq_u8(steps, writer.step);
  const uint8x16_t filled = load_bytes(writer.filled);
  const uint8x16_t sum = vaddq_u8(filled, width);
  const uint8x16_t rest = vandq_u8(sum, vdupq_n_u8(kMantissaWordBits - 1));
  const uint8x16_t to_bottom = vsubq_u8(width, vdupq_n_u8(kMantissaWordBits));
  const uint8x16_t to_top = vsubq_u8(vdupq_n_u8(kMantissaWordBits), filled);
  const uint8x16_t down = negated(rest);
  Words words;
#pragma GCC unroll 4
  for (unsigned v = 0; v < kVectors; ++v) {
    const uint32x4_t upper = upper_of(vld1q_u32(stretch.kept + i + v * kVectorWords));
    const uint32x4_t value = shifted(upper, to_bottom, v);
    std::uint32_t* const mantissas = writer.mantissas + v * kVectorWords;
    const uint32x4_t x = vld1q_u32(mantissas);
    words[v] = vorrq_u32(shifted(x, to_top, v), shifted(value, down, v));
    vst1q_u32(mantissas, vorrq_u32(shifted(x, width, v), value));
  }
  store_bytes(writer.filled, rest);
  const Chosen leave(turned(vcgeq_u8(sum, vdupq_n_u8(kMantissaWordBits))));
  at = append_words(words[0], words[1], leave, 0, at);
  return append_words(words[2], words[3], leave, 1, at);
}

// The upper 24 bits of chosen words.
[[gnu::always_inline]] inline std::byte* append_three_bytes(const uint32x4_t& first, const uint32x4_t& second,
                                                            const Chosen& chosen, unsigned half,
                                                            std::byte* at) noexcept {
  alignas(16) static constexpr std::uint8_t kWord[32] = {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5,
                                                         5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8};
  alignas(16) static constexpr std::uint8_t kByte[32] = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1,
                                                         2, 3, 1, 2, 3, 1, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1};
  const uint8x16x2_t words = {{vreinterpretq_u8_u32(first), vreinterpretq_u8_u32(second)}};
  const uint8x16_t place = vshlq_n_u8(gathered(chosen.mask(half)), 2);
  for (unsigned part = 0; part < 2; ++part) {
    const uint8x16_t of_words = vqtbl1q_u8(place, vld1q_u8(kWord + part * kTogether));
    const uint8x16_t places = vaddq_u8(of_words, vld1q_u8(kByte + part * kTogether));
    store_bytes(at + part * kTogether, vqtbl2q_u8(words, places));
  }
  return at + chosen.count(half) * kSignMantissaBytes;
}

[[gnu::always_inline]] inline std::byte* append_mantissas(const Stretch& stretch, unsigned i,
                                                          std::byte* at) noexcept {
  Words upper;
#pragma GCC unroll 4
  for (unsigned v = 0; v < kVectors; ++v) upper[v] = upper_of(vld1q_u32(stretch.kept + i + v * kVectorWords));
  const uint8x16_t steps = vshrq_n_u8(load_bytes(stretch.sizes + i), kStepsShift);
  const Chosen some(turned(vtstq_u8(steps, steps)));
  at = append_three_bytes(upper[0], upper[1], some, 0, at);
  return append_three_bytes(upper[2], upper[3], some, 1, at);
}

// Codes of sixteen lanes, in words: of row 0, and behind it of row 1, `shift` bits further up.
[[gnu::always_inline]] inline void joined_codes(uint8x16_t first, uint8x16_t second, uint8x16_t shift,
                                                Words& codes) noexcept {
  const uint16x8_t low = vdupq_n_u16(0xFF);
  const uint16x8_t firsts = vreinterpretq_u16_u8(first);
  const uint16x8_t seconds = vreinterpretq_u16_u8(second);
  const uint16x8_t shifts = vreinterpretq_u16_u8(shift);
  // Of vectors 0 and 2, and of 1 and 3, in halves of words.
  const uint16x8_t even =
      vorrq_u16(vandq_u16(firsts, low), vshlq_u16(vandq_u16(seconds, low), vreinterpretq_s16_u16(shifts)));
  const uint16x8_t odd =
      vorrq_u16(vshrq_n_u16(firsts, 8),
                vshlq_u16(vshrq_n_u16(seconds, 8), vreinterpretq_s16_u16(vshrq_n_u16(shifts, 8))));
  const uint32x4_t half = vdupq_n_u32(0xFFFF);
  codes[0] = vandq_u32(vreinterpretq_u32_u16(even), half);
  codes[1] = vandq_u32(vreinterpretq_u32_u16(odd), half);
  codes[2] = vshrq_n_u32(vreinterpretq_u32_u16(even), 16);
  codes[3] = vshrq_n_u32(vreinterpretq_u32_u16(odd), 16);
}

// The chosen of eight halves.
[[gnu::always_inline]] inline std::byte* append_halves(uint16x8_t halves, const Chosen& chosen, unsigned half,
                                                       std::byte* at) noexcept {
  const uint8x16_t place = vshlq_n_u8(gathered(chosen.mask(half)), 1);
  store_bytes(at, vqtbl1q_u8(vreinterpretq_u8_u16(halves), places_of_halves(place).val[0]));
  return at + chosen.count(half) * kWordBytes;
}

// Two codes for each lane: that of row 0, and behind it that of row 1.
[[gnu::always_inline]] inline std::byte* push_codes(const Stretch& stretch, Writer& writer,
                                                    std::byte* at) noexcept {
  const uint8x16_t length_mask = vdupq_n_u8(kEntryLengthMask);
#pragma GCC unroll 4
  for (unsigned lane = 0; lane < kMaxLanes; lane += kTogether) {
    const uint8x16_t shift = vandq_u8(load_bytes(stretch.sizes + lane), length_mask);
    const uint8x16_t other = vandq_u8(load_bytes(stretch.sizes + kMaxLanes + lane), length_mask);
    const uint8x16_t length = vaddq_u8(shift, other);
    Words codes;
    joined_codes(load_bytes(stretch.codes + lane), load_bytes(stretch.codes + kMaxLanes + lane), shift,
                 codes);
    const uint8x16_t held = load_bytes(writer.held + lane);
    const uint8x16_t sum = vaddq_u8(held, length);
    const uint8x16_t leaves = vcgeq_u8(sum, vdupq_n_u8(2 * kWordBits));
    const uint8x16_t down = vsubq_u8(vdupq_n_u8(kWordBits), held);
    Words oldest;
#pragma GCC unroll 4
    for (unsigned v = 0; v < kVectors; ++v) {
      std::uint32_t* const lanes = writer.codes + lane + v * kVectorWords;
      const uint32x4_t x = vld1q_u32(lanes);
      oldest[v] = shifted(x, down, v);
      vst1q_u32(lanes, vorrq_u32(shifted(x, length, v), codes[v]));
    }
    store_bytes(writer.held + lane, vsubq_u8(sum, vandq_u8(leaves, vdupq_n_u8(kWordBits))));
    const Chosen leave(turned(leaves));
    at = append_halves(vuzp1q_u16(vreinterpretq_u16_u32(oldest[0]), vreinterpretq_u16_u32(oldest[1])), leave,
                       0, at);
    at = append_halves(vuzp1q_u16(vreinterpretq_u16_u32(oldest[2]), vreinterpretq_u16_u32(oldest[3])), leave,
                       1, at);
  }
  return at;
}

// Exponents of escaped values, in their order.
[[gnu::always_inline]] inline std::byte* append_escapes(const Stretch& stretch, const EncodeTable& table,
                                                        std::byte* at) noexcept {
  const uint8x16_t size = vdupq_n_u8(size_of(table.escape));
  const uint8x16_t code = vdupq_n_u8(code_of(table.escape));
  for (unsigned row = 0; row < kMaxStretch; row += kMaxLanes) {
    uint8x16_t escapes[kGroups];
#pragma GCC unroll 4
    for (unsigned g = 0; g < kGroups; ++g) {
      const unsigned i = row + g * kTogether;
      escapes[g] = turned(vandq_u8(vceqq_u8(load_bytes(stretch.sizes + i), size),
                                   vceqq_u8(load_bytes(stretch.codes + i), code)));
    }
    for (std::uint64_t left = bits_of_bytes(escapes); left != 0; left &= left - 1) [[unlikely]] {
      const std::uint32_t bits = stretch.kept[row + countr_zero(left)];
      *at++ = static_cast<std::byte>((bits & kMagnitudeMask) >> kMantissaBits);
    }
  }
  return at;
}

template <Keep kKeep, bool kWhole, bool kResidual>
struct Encoder {
  Classifier16<kKeep, kWhole> classify;
  const EncodeTable& table;
  Planes planes;
  Writer writer;

  [[gnu::always_inline]] Encoder(const Rule& rule, const EncodeTable& of_codes) noexcept
      : classify(rule), table(of_codes) {
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      planes.of[0][slot] = size_of(table.entry[slot]);
      planes.of[1][slot] = code_of(table.entry[slot]);
    }
    for (std::uint8_t& held : writer.held) held = kWordBits;
    writer.any = vdupq_n_u32(0);
    writer.step = vdupq_n_u8(static_cast<std::uint8_t>(rule.precision.step));
  }

  [[gnu::always_inline]] std::byte* push(const Values& block, std::uint32_t begin, std::uint32_t count,
                                         std::byte* at) noexcept {
    Stretch stretch;
    classify_stretch<kKeep, kWhole, kResidual>(block, classify, table.base, begin, writer, stretch);
    look_up_stretch<kOneLevel<kKeep, kWhole>>(planes, count, stretch);
    for (unsigned i = 0; i < kMaxStretch; i += kTogether) {
      if constexpr (kWhole) {
        at = append_mantissas(stretch, i, at);
      } else {
        at = push_mantissas(stretch, i, writer, at);
      }
    }
    at = push_codes(stretch, writer, at);
    return append_escapes(stretch, table, at);
  }
};

// The states of sixteen lanes: an end bit above what they hold.
[[gnu::always_inline]] inline void write_sixteen(const std::uint32_t* bits, const std::uint8_t* held,
                                                 std::byte* at) noexcept {
  const uint8x16_t lengths = load_bytes(held);
  for (unsigned v = 0; v < kVectors; ++v) {
    const uint32x4_t length = vandq_u32(lowest(lengths, v), vdupq_n_u32(0xFF));
    const uint32x4_t end = vshlq_u32(vdupq_n_u32(1), vreinterpretq_s32_u32(length));
    const uint32x4_t below = vsubq_u32(end, vdupq_n_u32(1));
    const uint32x4_t state = vorrq_u32(end, vandq_u32(vld1q_u32(bits + v * kVectorWords), below));
    store_bytes(at + v * kTogether, vreinterpretq_u8_u32(state));
  }
}

struct Coding {
  template <Keep kKeep, bool kWhole, bool kResidual>
  static void count(const Values& chunk, std::uint32_t* counts) noexcept {
    static_assert(kLineElements == kTogether);
    const Classifier16<kKeep, kWhole> classify(chunk.rule);
    count_by<kKeep>(
        chunk,
        [&](std::uint32_t begin) {
          Words bits;
          input_of<kResidual>(chunk, begin, bits);
          const float* const significance =
              kKeep == Keep::kSignificance ? chunk.significance + begin : nullptr;
          const Classified16 values = classify(bits, significance);
          // Exponents below levels, in any order.
          Indices index;
          vst1q_u16(index.of, vreinterpretq_u16_u8(vzip1q_u8(values.exponents, values.levels)));
          vst1q_u16(index.of + kLineElements / 2,
                    vreinterpretq_u16_u8(vzip2q_u8(values.exponents, values.levels)));
          return index;
        },
        counts);
  }

  template <Keep kKeep, bool kWhole, bool kResidual>
  static EncodedBlock encode(const Values& block, const EncodeTable& table, std::byte* out) noexcept {
    Encoder<kKeep, kWhole, kResidual> encoder(block.rule, table);
    std::byte* const behind = encode_by<kKeep, kResidual>(block, encoder, out);
    const Writer& writer = encoder.writer;
    std::byte* at = behind;
    for (unsigned lane = 0; lane < kMaxLanes; lane += kTogether, at += kTogether * kStateBytes) {
      write_sixteen(writer.codes + lane, writer.held + lane, at);
    }
    if constexpr (!kWhole) write_sixteen(writer.mantissas, writer.filled, at);
    return {static_cast<std::uint32_t>(behind - out), vmaxvq_u32(writer.any) == 0};
  }

  template <Keep kKeep, bool kWhole, bool kResidual>
  static void store(const Values& values, std::byte* out) noexcept {
    const Classifier16<kKeep, kWhole> classify(values.rule);
    const std::uint32_t full = values.count / kTogether * kTogether;
    for (std::uint32_t at = 0; at < full; at += kTogether) {
      Words bits;
      input_of<kResidual>(values, at, bits);
      const float* const significance = kKeep == Keep::kSignificance ? values.significance + at : nullptr;
      const Classified16 classified = classify(bits, significance);
      keep_left_over<kResidual>(values, at, bits, classified.kept);
#pragma GCC unroll 4
      for (unsigned v = 0; v < kVectors; ++v) {
        store_bytes(out + (at + v * kVectorWords) * kValueBytes, vreinterpretq_u8_u32(classified.kept[v]));
      }
    }
    kernels_for(TargetId::kReference).store_values(rest_of(values, full), out + full * kValueBytes);
  }
};

}  // namespace

extern constexpr Kernels kKernels = {
    histogram<Coding>, encode_block<Coding>, store_values<Coding>, decode_block, nullptr, decode_stored};

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
