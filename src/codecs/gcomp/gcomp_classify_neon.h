// What sixteen values become: gcomp_classify_ops.h for NEON. Bytes are in columns; masks are bytes of all
// ones or zeros.
#pragma once

#include <cstdint>

#include <arm_neon.h>

#include "codecs/gcomp/gcomp_classify_ops.h"
#include "codecs/gcomp/gcomp_vectors_neon.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

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

// Sorts values by a rule. kWhole: nothing is cut.
template <Keep kKeep, bool kWhole>
class Classifier16 {
 public:
  [[gnu::always_inline]] explicit Classifier16(const Rule& rule) noexcept {
    level_ = vdupq_n_u8(static_cast<std::uint8_t>(rule.level));
    alignas(16) std::uint8_t of_distance[kFarDistance + 1];
    for (std::int32_t distance = 0; distance <= kFarDistance; ++distance) {
      of_distance[distance] = static_cast<std::uint8_t>(significance_level(distance, rule.step));
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
      const uint8x16_t cuttable = vcleq_u8(values.exponents, vdupq_n_u8(kHighestCut));
      const uint8x16_t level = levels(values.exponents, significance);
      values.levels = vbicq_u8(vandq_u8(level, cuttable), flushed);
      values.some = vmvnq_u8(flushed);
      // Of what is flushed all bits are cut.
      const uint8x16_t cut = vmulq_u8(values.levels, vdupq_n_u8(kCutBitsPerLevel));
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

  // Of an infinite significance as far as can be, of NaN none.
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

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
