// Of masks of bytes a bit each: NEON has no instruction that gathers them.
#pragma once

#include <cstdint>

#include <arm_neon.h>

namespace deltawire {

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
