#include <cstddef>
#include <cstdint>

#include <arm_neon.h>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_collect_ops.h"
#include "codecs/kernels/byte_mask_neon.h"
#include "codecs/kernels/gathered_neon.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 4;
constexpr std::uint32_t kBytes = 16;  // masks of as many values are a vector of bytes
constexpr std::uint32_t kEight = 8;   // values that are brought together at a time

[[gnu::always_inline]] inline uint32x4_t magnitudes_of(float32x4_t x) noexcept {
  return vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(kMagnitudeMask));
}

[[gnu::always_inline]] inline uint16x8_t halves_of(uint32x4_t first, uint32x4_t second) noexcept {
  return vuzp1q_u16(vreinterpretq_u16_u32(first), vreinterpretq_u16_u32(second));
}

[[gnu::always_inline]] inline uint8x16x2_t bytes_of(uint32x4_t first, uint32x4_t second) noexcept {
  return {{vreinterpretq_u8_u32(first), vreinterpretq_u8_u32(second)}};
}

struct Vectors {
  static constexpr std::uint32_t kRest = kEight;

  uint32x4_t least;

  [[gnu::always_inline]] explicit Vectors(std::uint32_t cut) noexcept : least(vdupq_n_u32(cut)) {}

  static bool are_all_sent(const float* values, std::uint32_t count, std::uint32_t cut) noexcept {
    std::uint32_t i = 0;
    for (; i + kBytes <= count; i += kBytes) {
      uint32x4_t smallest = magnitudes_of(vld1q_f32(values + i));
      for (std::uint32_t j = kLanes; j < kBytes; j += kLanes) {
        smallest = vminq_u32(smallest, magnitudes_of(vld1q_f32(values + i + j)));
      }
      if (vminvq_u32(smallest) < cut) return false;
    }
    for (; i < count; ++i) {
      if ((bit_cast<std::uint32_t>(values[i]) & kMagnitudeMask) < cut) return false;
    }
    return true;
  }

  template <bool kResidual>
  [[gnu::always_inline]] std::uint64_t look_at(const PairInput& input, std::uint64_t at) const noexcept {
    uint8x16_t chosen[kGroup / kBytes];
#pragma GCC unroll 4
    for (unsigned part = 0; part < kGroup / kBytes; ++part) {
      uint32x4_t sent[4];
#pragma GCC unroll 4
      for (unsigned v = 0; v < 4; ++v) {
        const std::uint64_t first = at + part * kBytes + v * kLanes;
        float32x4_t x = vld1q_f32(input.in + first);
        if constexpr (kResidual) {
          x = vaddq_f32(x, vld1q_f32(input.residual + first));
          vst1q_f32(input.left + first, x);
        }
        sent[v] = vcgeq_u32(magnitudes_of(x), least);
      }
      const uint16x8_t low = halves_of(sent[0], sent[1]);
      const uint16x8_t high = halves_of(sent[2], sent[3]);
      chosen[part] = vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
    }
    return bits_of_bytes(chosen);
  }

  template <bool kResidual, bool kKeys>
  [[gnu::always_inline]] std::uint32_t take(const PairInput& input, std::uint64_t at, std::uint64_t chosen,
                                            const PairOutput& out) const noexcept {
    alignas(16) static constexpr std::uint32_t kPlaces[kEight] = {0, 1, 2, 3, 4, 5, 6, 7};
    const float* const x = (kResidual ? input.left : input.in) + at;
    const uint8x8_t sizes = vcnt_u8(vcreate_u8(chosen));
    const std::uint64_t counts = vget_lane_u64(vreinterpret_u64_u8(sizes), 0);
    std::uint32_t pairs = 0;
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kGroup; i += kEight) {
      const uint32x4_t before = vdupq_n_u32(static_cast<std::uint32_t>(at) + i);
      const uint32x4_t first = kKeys ? vld1q_u32(input.keys + at + i) : vaddq_u32(before, vld1q_u32(kPlaces));
      const uint32x4_t second =
          kKeys ? vld1q_u32(input.keys + at + i + kLanes) : vaddq_u32(before, vld1q_u32(kPlaces + kLanes));
      const uint8x16x2_t keys = bytes_of(first, second);
      const uint8x16x2_t values =
          bytes_of(vreinterpretq_u32_f32(vld1q_f32(x + i)), vreinterpretq_u32_f32(vld1q_f32(x + i + kLanes)));
      const uint8x16_t place = vshlq_n_u8(gathered(static_cast<std::uint32_t>(chosen >> i & 0xFF)), 2);
      const uint8x16x2_t places = places_of_words(places_of_halves(place).val[0]);
#pragma GCC unroll 2
      for (unsigned half = 0; half < 2; ++half) {
        const std::uint32_t to = pairs + half * kLanes;
        vst1q_u32(out.keys + to, vreinterpretq_u32_u8(vqtbl2q_u8(keys, places.val[half])));
        vst1q_f32(out.values + to, vreinterpretq_f32_u8(vqtbl2q_u8(values, places.val[half])));
      }
      pairs += static_cast<std::uint32_t>(counts >> i & 0xFF);
    }
    return pairs;
  }

  template <bool kResidual, bool kKeys>
  [[gnu::always_inline]] std::uint32_t rest(const PairInput& input, std::uint64_t at, std::uint32_t count,
                                            const PairOutput& out) const noexcept {
    std::uint32_t pairs = 0;
    for (std::uint32_t i = 0; i < count; ++i) {  // without a branch: written always, counted if sent
      float x = input.in[at + i];
      if constexpr (kResidual) x += input.residual[at + i];
      if constexpr (kResidual) input.left[at + i] = x;
      out.keys[pairs] = kKeys ? input.keys[at + i] : static_cast<std::uint32_t>(at + i);
      out.values[pairs] = x;
      pairs += (bit_cast<std::uint32_t>(x) & kMagnitudeMask) >= vgetq_lane_u32(least, 0) ? 1U : 0U;
    }
    return pairs;
  }
};

}  // namespace

Collected collect(const PairInput& input, std::uint64_t& at, std::uint32_t cut, const Staging& staging) {
  return collect_by<Vectors>(input, at, cut, staging);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
