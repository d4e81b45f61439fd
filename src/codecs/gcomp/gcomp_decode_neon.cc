// Decoding for NEON: blocks of 64 lanes. Shorter ones are left to the reference.
#include <cstddef>
#include <cstdint>

#include <arm_neon.h>

#include "base/bit_functions.h"
#include "codecs/gcomp/gcomp_decode_ops.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_vectors_neon.h"
#include "codecs/kernels/gathered_neon.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

// The first plane holds an entry's code length and, above it, the bits of sign and mantissa in steps; the
// second holds the row.
constexpr unsigned kStepsShift = 4;

[[gnu::always_inline]] inline void fill(const DecodeTable& table, Planes& planes) noexcept {
  for (unsigned i = 0; i < 1U << kMaxCodeBits; ++i) {
    const unsigned entry = table.entry[i];
    const unsigned steps = (entry >> kEntryWidthShift & kEntryWidthMask) / table.step;
    planes.of[0][i] = static_cast<std::uint8_t>((entry & kEntryLengthMask) | steps << kStepsShift);
    planes.of[1][i] = static_cast<std::uint8_t>(entry >> kEntryRowShift);
  }
}

// The lanes of a block, cleared of what was read. Bytes in columns.
struct Lanes {
  alignas(16) std::uint32_t codes[kMaxLanes];
  alignas(16) std::uint8_t held[kMaxLanes];
  alignas(16) std::uint32_t mantissas[kMaxMantissaLanes];
  alignas(16) std::uint8_t filled[kMaxMantissaLanes];
  uint8x16_t step;  // of the values' Precision
};

// The values between two refills: two rows of 64. Bytes in columns.
struct Stretch {
  alignas(16) std::uint8_t sizes[kMaxStretch];  // the first plane's
  alignas(16) std::uint8_t exponents[kMaxStretch];
  std::uint64_t escapes[2];  // in the order of values
};

// Reads one row of 64 codes. What is not there has no length and no width.
[[gnu::always_inline]] inline void read_row(const Planes& planes, std::uint32_t base, std::uint32_t count,
                                            std::uint32_t row, Lanes& lanes, Stretch& stretch) noexcept {
  uint8x16_t next[kGroups];
  uint8x16_t sizes[kGroups];
  uint8x16_t rows[kGroups];
  uint8x16_t escapes[kGroups];
#pragma GCC unroll 4
  for (unsigned g = 0; g < kGroups; ++g) {
    Words codes;
    for (unsigned v = 0; v < kVectors; ++v)
      codes[v] = vld1q_u32(lanes.codes + g * kTogether + v * kVectorWords);
    next[g] = low_bytes(codes);
  }
  look_up<4>(planes, next, sizes, rows);
  for (unsigned g = 0; count < kMaxLanes && g < kGroups; ++g) {
    const uint8x16_t present = first_values(count > g * kTogether ? count - g * kTogether : 0);
    sizes[g] = vandq_u8(sizes[g], present);
    rows[g] = vandq_u8(rows[g], present);
  }
#pragma GCC unroll 4
  for (unsigned g = 0; g < kGroups; ++g) {
    const uint8x16_t length = vandq_u8(sizes[g], vdupq_n_u8(kEntryLengthMask));
    const uint8x16_t down = negated(length);
#pragma GCC unroll 4
    for (unsigned v = 0; v < kVectors; ++v) {
      std::uint32_t* const codes = lanes.codes + g * kTogether + v * kVectorWords;
      vst1q_u32(codes, shifted(vld1q_u32(codes), down, v));
    }
    std::uint8_t* const held = lanes.held + g * kTogether;
    store_bytes(held, vsubq_u8(load_bytes(held), length));
    const std::uint32_t at = row * kMaxLanes + g * kTogether;
    store_bytes(stretch.sizes + at, sizes[g]);
    const uint8x16_t exponents = vaddq_u8(rows[g], vdupq_n_u8(static_cast<std::uint8_t>(base)));
    store_bytes(stretch.exponents + at, vandq_u8(exponents, vtstq_u8(rows[g], rows[g])));
    escapes[g] = turned(vceqq_u8(rows[g], vdupq_n_u8(kEscapeSlot)));
  }
  stretch.escapes[row] = bits_of_bytes(escapes);
}

// Returns where their exponents begin. Sets `legal` to whether all of them may be.
const std::byte* read_escapes(const DecodeTable& table, Stretch& stretch, const std::byte* at,
                              bool& legal) noexcept {
  for (unsigned row = 2; row-- > 0;) {
    for (std::uint64_t left = stretch.escapes[row]; left != 0;) {
      const unsigned bit = bit_width(left) - 1;
      left ^= std::uint64_t{1} << bit;
      const auto exponent = static_cast<std::uint32_t>(*--at);
      legal &= may_escape(table, exponent);
      const std::uint32_t place = row * kMaxLanes + bit / kTogether * kTogether + column_of(bit % kTogether);
      stretch.exponents[place] = static_cast<std::uint8_t>(exponent);
    }
  }
  return at;
}

// Which of sixteen values take something off the stream, and where it stands in their order.
struct Takers {
  uint8x16_t before;    // of each of them, how many of its half of eight stand before it
  std::uint32_t first;  // how many they are in the first half
  std::uint32_t last;
};

// `take`: masks, in the order of values.
[[gnu::always_inline]] inline Takers takers_of(uint8x16_t take) noexcept {
  // How many there are from each value on to the end of its half.
  uint64x2_t sums = vreinterpretq_u64_u8(vshrq_n_u8(take, 7));
  sums = vsraq_n_u64(sums, sums, 8);
  sums = vsraq_n_u64(sums, sums, 16);
  sums = vsraq_n_u64(sums, sums, 32);
  const uint8x16_t behind = vreinterpretq_u8_u64(sums);
  alignas(16) static constexpr std::uint8_t kHalves[16] = {0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8};
  const uint8x16_t all = vqtbl1q_u8(behind, vld1q_u8(kHalves));
  return {vsubq_u8(all, behind), vgetq_lane_u8(behind, 0), vgetq_lane_u8(behind, 8)};
}

[[gnu::always_inline]] inline void refill(Lanes& lanes, const std::byte*& at) noexcept {
#pragma GCC unroll 4
  for (unsigned g = kGroups; g-- > 0;) {
    const uint8x16_t held = load_bytes(lanes.held + g * kTogether);
    const uint8x16_t needs = vcltq_u8(held, vdupq_n_u8(kWordBits));
    const uint8x16_t take = turned(needs);
    const Takers takers = takers_of(take);
    // A lane that takes nothing gets a place that no vector has, which gives 0.
    const uint8x16x2_t places = places_of_halves(vornq_u8(vshlq_n_u8(takers.before, 1), take));
    at -= takers.last * kWordBytes;
    const uint16x8_t last = vreinterpretq_u16_u8(vqtbl1q_u8(load_bytes(at), places.val[1]));
    at -= takers.first * kWordBytes;
    const uint16x8_t first = vreinterpretq_u16_u8(vqtbl1q_u8(load_bytes(at), places.val[0]));
    const Words words = {vmovl_u16(vget_low_u16(first)), vmovl_high_u16(first), vmovl_u16(vget_low_u16(last)),
                         vmovl_high_u16(last)};
#pragma GCC unroll 4
    for (unsigned v = 0; v < kVectors; ++v) {
      std::uint32_t* const codes = lanes.codes + g * kTogether + v * kVectorWords;
      vst1q_u32(codes, vorrq_u32(vld1q_u32(codes), shifted(words[v], held, v)));
    }
    store_bytes(lanes.held + g * kTogether, vaddq_u8(held, vandq_u8(needs, vdupq_n_u8(kWordBits))));
  }
}

// Words of the stream for those of a half that take one, or 0.
[[gnu::always_inline]] inline void take_words(const std::byte* at, uint8x16_t places, uint32x4_t& first,
                                              uint32x4_t& second) noexcept {
  const uint8x16x2_t stream = {{load_bytes(at), load_bytes(at + kTogether)}};
  const uint8x16x2_t of_words = places_of_words(places);
  first = vreinterpretq_u32_u8(vqtbl2q_u8(stream, of_words.val[0]));
  second = vreinterpretq_u32_u8(vqtbl2q_u8(stream, of_words.val[1]));
}

// The next number of each mantissa lane, of `width` bits, in the upper bits.
[[gnu::always_inline]] inline void read_mantissas(uint8x16_t width, Lanes& lanes, const std::byte*& at,
                                                  Words& upper) noexcept {
  const uint8x16_t filled = load_bytes(lanes.filled);
  const uint8x16_t take = turned(vcltq_u8(filled, width));
  const Takers takers = takers_of(take);
  const uint8x16x2_t places = places_of_halves(vornq_u8(vshlq_n_u8(takers.before, 2), take));
  Words words;
  at -= takers.last * kMantissaWordBytes;
  take_words(at, places.val[1], words[2], words[3]);
  at -= takers.first * kMantissaWordBytes;
  take_words(at, places.val[0], words[0], words[1]);
  const uint8x16_t down = negated(width);
  const uint8x16_t rest = vsubq_u8(filled, width);
  const uint8x16_t to_top = vsubq_u8(vdupq_n_u8(kMantissaWordBits), width);
#pragma GCC unroll 4
  for (unsigned v = 0; v < kVectors; ++v) {
    std::uint32_t* const mantissas = lanes.mantissas + v * kVectorWords;
    const uint32x4_t held = vld1q_u32(mantissas);
    const uint32x4_t x = vorrq_u32(held, shifted(words[v], filled, v));
    upper[v] = shifted(x, to_top, v);
    vst1q_u32(mantissas, vorrq_u32(shifted(held, down, v), shifted(words[v], rest, v)));
  }
  store_bytes(lanes.filled, vandq_u8(rest, vdupq_n_u8(kMantissaWordBits - 1)));
}

// The same where all that isn't zero has 3 bytes; `some`: which, in columns.
[[gnu::always_inline]] inline void take_mantissas(uint8x16_t some, const std::byte*& at,
                                                  Words& upper) noexcept {
  const uint8x16_t take = turned(some);
  const Takers takers = takers_of(take);
  const uint8x16_t place = vornq_u8(vmulq_u8(takers.before, vdupq_n_u8(kSignMantissaBytes)), take);
  // Four bytes a value, of which the lowest is none of the stream's.
  const uint8x16_t none = vdupq_n_u8(255);
  const uint8x16_t second = vqaddq_u8(place, vdupq_n_u8(1));
  const uint8x16_t third = vqaddq_u8(place, vdupq_n_u8(2));
  at -= takers.last * kSignMantissaBytes;
  const uint8x16x2_t last = {{load_bytes(at), load_bytes(at + kTogether)}};
  at -= takers.first * kSignMantissaBytes;
  const uint8x16x2_t first = {{load_bytes(at), load_bytes(at + kTogether)}};
  const uint16x8_t low[2] = {vreinterpretq_u16_u8(vzip1q_u8(none, place)),
                             vreinterpretq_u16_u8(vzip2q_u8(none, place))};
  const uint16x8_t high[2] = {vreinterpretq_u16_u8(vzip1q_u8(second, third)),
                              vreinterpretq_u16_u8(vzip2q_u8(second, third))};
  for (unsigned half = 0; half < 2; ++half) {
    const uint8x16x2_t& stream = half == 0 ? first : last;
    const uint8x16_t places[2] = {vreinterpretq_u8_u16(vzip1q_u16(low[half], high[half])),
                                  vreinterpretq_u8_u16(vzip2q_u16(low[half], high[half]))};
    upper[2 * half] = vreinterpretq_u32_u8(vqtbl2q_u8(stream, places[0]));
    upper[2 * half + 1] = vreinterpretq_u32_u8(vqtbl2q_u8(stream, places[1]));
  }
}

template <Deliver kDeliver>
[[gnu::always_inline]] inline void deliver(uint32x4_t bits, float32x4_t scale, float* slot) noexcept {
  const float32x4_t value = vreinterpretq_f32_u32(bits);
  if constexpr (kDeliver == Deliver::kOverwrite) {
    vst1q_f32(slot, value);
    return;
  }
  const uint32x4_t some = vtstq_u32(bits, bits);
  const float32x4_t scaled = vmulq_f32(scale, value);
  if constexpr (kDeliver == Deliver::kScale) {
    vst1q_f32(slot, vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(scaled), some)));
  } else {
    const float32x4_t before = vld1q_f32(slot);
    vst1q_f32(slot, vbslq_f32(some, vaddq_f32(before, scaled), before));
  }
}

// The bits of the values of vector v: sign and mantissa from the upper bits, the exponents between them.
[[gnu::always_inline]] inline uint32x4_t assembled(uint32x4_t upper, uint8x16_t exponents,
                                                   unsigned v) noexcept {
  const uint32x4_t signs = vsriq_n_u32(upper, highest(exponents, v), 1);
  return vsriq_n_u32(signs, vshlq_n_u32(upper, 1), 9);
}

// The other words of the stretch, downwards from `at`. Returns how many values are +0.
template <bool kWhole, Deliver kDeliver>
[[gnu::always_inline]] inline std::uint32_t read_values(const Stretch& stretch, Lanes& lanes,
                                                        const std::byte*& at, float32x4_t scale,
                                                        float* slot) noexcept {
  uint32x4_t zeros = vdupq_n_u32(0);
  for (std::uint32_t group = kMaxStretch / kTogether; group-- > 0;) {
    const uint8x16_t steps = vshrq_n_u8(load_bytes(stretch.sizes + group * kTogether), kStepsShift);
    const uint8x16_t exponents = load_bytes(stretch.exponents + group * kTogether);
    Words upper;
    if constexpr (kWhole) {
      take_mantissas(vtstq_u8(steps, steps), at, upper);
    } else {
      read_mantissas(vmulq_u8(steps, lanes.step), lanes, at, upper);
    }
#pragma GCC unroll 4
    for (unsigned v = 0; v < kVectors; ++v) {
      const uint32x4_t bits = assembled(upper[v], exponents, v);
      deliver<kDeliver>(bits, scale, slot + group * kTogether + v * kVectorWords);
      if constexpr (kWhole) zeros = vsubq_u32(zeros, vceqzq_u32(bits));
    }
  }
  return vaddvq_u32(zeros);
}

// Sets lanes to what states say, less their end bits; returns whether all have one, and `least` bits.
[[gnu::always_inline]] inline bool open_sixteen(const std::byte* states, std::uint32_t least,
                                                std::uint32_t* bits, std::uint8_t* held) noexcept {
  Words lengths;
  uint32x4_t wrong = vdupq_n_u32(0);
  for (unsigned v = 0; v < kVectors; ++v) {
    const uint32x4_t state = vreinterpretq_u32_u8(load_bytes(states + v * kTogether));
    lengths[v] = vsubq_u32(vdupq_n_u32(31), vclzq_u32(state));
    const uint32x4_t end = vshlq_u32(vdupq_n_u32(1), vreinterpretq_s32_u32(lengths[v]));
    vst1q_u32(bits + v * kVectorWords, veorq_u32(state, end));
    wrong = vorrq_u32(wrong, vcltq_u32(state, vdupq_n_u32(1U << least)));
  }
  store_bytes(held, low_bytes(lengths));
  return vmaxvq_u32(wrong) == 0;
}

template <bool kWhole>
struct Decoder {
  const DecodeTable& table;
  float32x4_t scale;
  Planes planes;
  Lanes lanes;

  [[gnu::always_inline]] Fault open(const std::byte* states) noexcept {
    fill(table, planes);
    lanes.step = vdupq_n_u8(static_cast<std::uint8_t>(table.step));
    bool good = true;
    for (unsigned lane = 0; lane < kMaxLanes; lane += kTogether) {
      good &= open_sixteen(states + lane * kStateBytes, kWordBits, lanes.codes + lane, lanes.held + lane);
    }
    const std::byte* const behind = states + kMaxLanes * kStateBytes;
    if constexpr (!kWhole) good &= open_sixteen(behind, 0, lanes.mantissas, lanes.filled);
    return good ? nullptr : &faults::kLaneState;
  }

  template <Deliver kDeliver>
  [[gnu::always_inline]] Fault stretch(std::uint32_t count, const std::byte*& at, float* slot) noexcept {
    Stretch stretch;
    read_row(planes, table.base, count, 0, lanes, stretch);
    read_row(planes, table.base, count < kMaxLanes ? 0 : count - kMaxLanes, 1, lanes, stretch);
    bool legal = true;
    if ((stretch.escapes[0] | stretch.escapes[1]) != 0) [[unlikely]]
      at = read_escapes(table, stretch, at, legal);
    refill(lanes, at);
    const std::byte* const behind = at;
    const std::uint32_t zeros = read_values<kWhole, kDeliver>(stretch, lanes, at, scale, slot);
    if (!legal) return &faults::kEscape;
    if constexpr (!kWhole) return nullptr;
    // What has bytes is no +0.
    const auto some = static_cast<std::uint32_t>(behind - at) / kSignMantissaBytes;
    return zeros + some == kMaxStretch ? nullptr : &faults::kTinyZero;
  }

  Fault close() const noexcept {
    uint32x4_t left = vdupq_n_u32(0);
    uint8x16_t bits = vdupq_n_u8(0);
    for (unsigned lane = 0; lane < kMaxLanes; lane += kVectorWords) {
      left = vorrq_u32(left, vld1q_u32(lanes.codes + lane));
    }
    for (unsigned lane = 0; lane < kMaxLanes; lane += kTogether) {
      bits = vorrq_u8(bits, veorq_u8(load_bytes(lanes.held + lane), vdupq_n_u8(kWordBits)));
    }
    if constexpr (!kWhole) {
      for (unsigned lane = 0; lane < kMaxMantissaLanes; lane += kVectorWords) {
        left = vorrq_u32(left, vld1q_u32(lanes.mantissas + lane));
      }
      bits = vorrq_u8(bits, load_bytes(lanes.filled));
    }
    return vmaxvq_u32(left) == 0 && vmaxvq_u8(bits) == 0 ? nullptr : &faults::kLaneEnd;
  }
};

template <bool kWhole, Deliver kDeliver>
Fault decode_lanes(const BlockBytes& body, const DecodeTable& table, const Target& target) noexcept {
  Decoder<kWhole> decoder{table, vdupq_n_f32(target.scale), {}, {}};
  return decode_by<kDeliver>(decoder, body, target);
}

// `payload` may be null: zeros.
template <Deliver kDeliver>
void hand_over(const std::byte* payload, const Target& target) noexcept {
  const float32x4_t scale = vdupq_n_f32(target.scale);
  const std::uint32_t full = target.count / kTogether * kTogether;
  for (std::uint32_t i = 0; i < full; i += kTogether) {
#pragma GCC unroll 4
    for (std::uint32_t at = i; at < i + kTogether; at += kVectorWords) {
      const uint32x4_t bits =
          payload != nullptr ? vreinterpretq_u32_u8(load_bytes(payload + at * kValueBytes)) : vdupq_n_u32(0);
      deliver<kDeliver>(bits, scale, target.slot + at);
    }
  }
  hand_over_rest(payload, target, full);
}

}  // namespace

Fault decode_block(const BlockBytes& body, const DecodeTable& table, const Target& target) {
  if (lanes_for(target.count) < kMaxLanes) {
    return kernels_for(TargetId::kReference).decode_block(body, table, target);
  }
  return for_target<0>(target, [&]<Deliver kDeliver>() {
    return table.in_bytes ? decode_lanes<true, kDeliver>(body, table, target)
                          : decode_lanes<false, kDeliver>(body, table, target);
  });
}

void decode_stored(const std::byte* payload, const Target& target) {
  for_target<0>(target, [&]<Deliver kDeliver>() { hand_over<kDeliver>(payload, target); });
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
