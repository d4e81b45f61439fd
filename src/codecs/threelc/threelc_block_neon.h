// 64 bytes of a chunk, in which codes and zero bytes are looked for.
#pragma once

#include <cstddef>
#include <cstdint>

#include <arm_neon.h>

#include "codecs/kernels/byte_mask_neon.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

struct Block {
  static constexpr std::uint32_t kBytes = 64;

  [[gnu::always_inline]] static Block load(const std::byte* from) noexcept {
    Block block{};
    for (unsigned i = 0; i < 4; ++i) {
      block.bytes[i] = vld1q_u8(reinterpret_cast<const std::uint8_t*>(from + 16 * i));
    }
    return block;
  }

  [[gnu::always_inline]] static Block all(std::byte byte) noexcept {
    const uint8x16_t bytes = vdupq_n_u8(static_cast<std::uint8_t>(byte));
    return {{bytes, bytes, bytes, bytes}};
  }

  [[gnu::always_inline]] void store(std::byte* to) const noexcept {
    for (unsigned i = 0; i < 4; ++i) vst1q_u8(reinterpret_cast<std::uint8_t*>(to + 16 * i), bytes[i]);
  }
  [[gnu::always_inline]] std::uint64_t equal(std::byte byte) const noexcept {
    uint8x16_t same[4];
    for (unsigned i = 0; i < 4; ++i)
      same[i] = vceqq_u8(bytes[i], vdupq_n_u8(static_cast<std::uint8_t>(byte)));
    return bits_of_bytes(same);
  }

  [[gnu::always_inline]] std::uint64_t at_least(std::byte byte) const noexcept {
    uint8x16_t large[4];
    for (unsigned i = 0; i < 4; ++i)
      large[i] = vcgeq_u8(bytes[i], vdupq_n_u8(static_cast<std::uint8_t>(byte)));
    return bits_of_bytes(large);
  }

  uint8x16_t bytes[4];
};

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
