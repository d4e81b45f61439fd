// Chosen lanes brought together: NEON has no instruction for that, but looks bytes up.
#pragma once

#include <cstdint>

#include <arm_neon.h>

namespace deltawire {

// Which of eight are chosen, from the first on, by mask.
struct GatherPlaces {
  alignas(8) std::uint8_t of_mask[256][8];
};

[[gnu::always_inline]] constexpr GatherPlaces make_gather_places() noexcept {
  GatherPlaces places{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned chosen = 0;
    for (unsigned i = 0; i < 8; ++i) {
      if ((mask >> i & 1) != 0) places.of_mask[mask][chosen++] = static_cast<std::uint8_t>(i);
    }
  }
  return places;
}

inline constexpr GatherPlaces kGatherPlaces = make_gather_places();

// Where bytes, halves or words are looked up is a byte for each byte: these are made of places of whole
// numbers. 255 is no place and gives 0.
//
// The chosen of eight in the lower half, and behind them 0.
[[gnu::always_inline]] inline uint8x16_t gathered(std::uint32_t mask) noexcept {
  return vcombine_u8(vld1_u8(kGatherPlaces.of_mask[mask]), vdup_n_u8(0));
}

// Pairs of bytes p and p + 1, of even ones or 255, which stays what it is.
[[gnu::always_inline]] inline uint8x16x2_t places_of_halves(uint8x16_t bytes) noexcept {
  const uint8x16_t next = vorrq_u8(bytes, vdupq_n_u8(1));
  return {{vzip1q_u8(bytes, next), vzip2q_u8(bytes, next)}};
}

// Of eight bytes p, in pairs with p + 1, all of p to p + 3.
[[gnu::always_inline]] inline uint8x16x2_t places_of_words(uint8x16_t pairs) noexcept {
  const uint16x8_t low = vreinterpretq_u16_u8(pairs);
  const uint16x8_t high = vreinterpretq_u16_u8(vorrq_u8(pairs, vdupq_n_u8(2)));
  return {{vreinterpretq_u8_u16(vzip1q_u16(low, high)), vreinterpretq_u8_u16(vzip2q_u16(low, high))}};
}

// Which of two times eight lanes are chosen.
class Chosen {
 public:
  // REQUIRES: bytes of 0x00 or 0xFF.
  [[gnu::always_inline]] explicit Chosen(uint8x16_t bytes) noexcept {
    const uint8x16_t place = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    // Neighbours add up to bytes of 2, of 4 and of 8 bits.
    const uint8x16_t twos = vandq_u8(bytes, place);
    const uint8x16_t fours = vpaddq_u8(twos, twos);
    const uint8x16_t eights = vpaddq_u8(fours, fours);
    const uint8x16_t masks = vpaddq_u8(eights, eights);
    masks_ = vgetq_lane_u16(vreinterpretq_u16_u8(masks), 0);
    counts_ = vgetq_lane_u16(vreinterpretq_u16_u8(vcntq_u8(masks)), 0);
  }

  [[gnu::always_inline]] std::uint32_t mask(unsigned half) const noexcept {
    return masks_ >> 8 * half & 0xFF;
  }
  [[gnu::always_inline]] std::uint32_t count(unsigned half) const noexcept {
    return counts_ >> 8 * half & 0xFF;
  }

 private:
  std::uint32_t masks_;
  std::uint32_t counts_;
};

// Of masks of bytes a bit each: NEON has no instruction that gathers them.

// Bit i: whether byte i of the four vectors is set. REQUIRES: bytes of 0x00 or 0xFF.
[[gnu::always_inline]] inline std::uint64_t bits_of_bytes(const uint8x16_t (&bytes)[4]) noexcept {
  const uint8x16_t place = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  // Neighbours add up to bytes of 2, of 4 and of 8 bits.
  const uint8x16_t first = vpaddq_u8(vandq_u8(bytes[0], place), vandq_u8(bytes[1], place));
  const uint8x16_t last = vpaddq_u8(vandq_u8(bytes[2], place), vandq_u8(bytes[3], place));
  const uint8x16_t fours = vpaddq_u8(first, last);
  return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(fours, fours)), 0);
}

}  // namespace deltawire
