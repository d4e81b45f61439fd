// Decoding a chunk of hostile bytes: what has no fault is read here, and all else by the reference. The
// digits of 16 packed bytes at a time, and of 8 bits of maps.
#include <cstddef>
#include <cstdint>

#include <arm_neon.h>

#include "base/bit_functions.h"
#include "codecs/threelc/threelc_block_neon.h"
#include "codecs/threelc/threelc_expand_ops.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_unpack_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kVector = 16;  // bytes

// What digits stand for.
struct Values {
  uint32x4_t positive;
  uint32x4_t negative;
};

[[gnu::always_inline]] inline Values values_of(const DecodeTarget& target) noexcept {
  return {vreinterpretq_u32_f32(vdupq_n_f32(target.value)),
          vreinterpretq_u32_f32(vdupq_n_f32(-target.value))};
}

// Four values, of digits whose masks these are. Those of digits that are 0 leave a sum's bits as they are.
template <bool kSum>
[[gnu::always_inline]] inline void put_four(float* slot, int16x4_t positive, int16x4_t negative,
                                            const Values& of_digit) noexcept {
  const uint32x4_t above = vreinterpretq_u32_s32(vmovl_s16(positive));
  const uint32x4_t below = vreinterpretq_u32_s32(vmovl_s16(negative));
  const float32x4_t values = vreinterpretq_f32_u32(
      vorrq_u32(vandq_u32(above, of_digit.positive), vandq_u32(below, of_digit.negative)));
  if (!kSum) return vst1q_f32(slot, values);
  const float32x4_t before = vld1q_f32(slot);
  vst1q_f32(slot, vbslq_f32(vorrq_u32(above, below), vaddq_f32(before, values), before));
}

// The digits of eight bytes. A byte times 270, as a fraction of 2^16, is just above a number of five digits
// behind the point in base 3: the first of them is 2 from two thirds on, 0 below one, and times 3 the next
// one is the first.
template <bool kSum>
[[gnu::always_inline]] inline void unpack_eight(uint8x8_t packed, const Values& of_digit,
                                                float* slot) noexcept {
  uint16x8_t fraction = vmulq_n_u16(vmovl_u8(packed), 270);
  for (std::uint32_t p = 0; p < kDigitsPerByte; ++p, slot += kRowBytes) {
    const int16x8_t positive = vreinterpretq_s16_u16(vcgeq_u16(fraction, vdupq_n_u16(0xAAAB)));
    const int16x8_t negative = vreinterpretq_s16_u16(vcltq_u16(fraction, vdupq_n_u16(0x5556)));
    put_four<kSum>(slot, vget_low_s16(positive), vget_low_s16(negative), of_digit);
    put_four<kSum>(slot + 4, vget_high_s16(positive), vget_high_s16(negative), of_digit);
    fraction = vmulq_n_u16(fraction, 3);
  }
}

template <bool kSum>
std::uint32_t unpack_into(const std::byte* packed, std::uint32_t rows, const DecodeTarget& target) noexcept {
  const Values of_digit = values_of(target);
  uint8x16_t largest = vdupq_n_u8(0);
  float* slot = target.slot;
  for (std::uint32_t row = 0; row < rows; ++row, packed += kRowBytes, slot += kRowElements) {
    const Block block = Block::load(packed);
    for (const uint8x16_t bytes : block.bytes) largest = vmaxq_u8(largest, bytes);
    if (kSum) {
      const std::uint64_t nonzero = ~block.equal(kZeroByte);
      if (popcount(nonzero) <= kFewBytes) {
        add_bytes(packed, nonzero, target.value, slot);
        continue;
      }
    }
    for (std::uint32_t i = 0; i < kRowBytes / kVector; ++i) {
      unpack_eight<kSum>(vget_low_u8(block.bytes[i]), of_digit, slot + i * kVector);
      unpack_eight<kSum>(vget_high_u8(block.bytes[i]), of_digit, slot + i * kVector + kVector / 2);
    }
  }
  return vmaxvq_u8(largest);
}

// The values of eight digits.
template <bool kSum>
[[gnu::always_inline]] inline void put_eight(std::byte nonzero, std::byte negative, const Values& of_digit,
                                             float* slot) noexcept {
  constexpr std::uint16_t kBits[] = {1, 2, 4, 8, 16, 32, 64, 128};
  const uint16x8_t bits = vld1q_u16(kBits);
  const uint16x8_t below = vtstq_u16(vdupq_n_u16(static_cast<std::uint16_t>(negative)), bits);
  const uint16x8_t above =
      vbicq_u16(vtstq_u16(vdupq_n_u16(static_cast<std::uint16_t>(nonzero)), bits), below);
  const int16x8_t positives = vreinterpretq_s16_u16(above);
  const int16x8_t negatives = vreinterpretq_s16_u16(below);
  put_four<kSum>(slot, vget_low_s16(positives), vget_low_s16(negatives), of_digit);
  put_four<kSum>(slot + 4, vget_high_s16(positives), vget_high_s16(negatives), of_digit);
}

template <bool kSum>
void put_maps(const DigitMaps& maps, const DecodeTarget& target) noexcept {
  const Values of_digit = values_of(target);
  std::uint32_t at = 0;
  for (; at + 8 <= target.count; at += 8) {
    const std::byte nonzero = maps.nonzero[at / 8];
    if (kSum && nonzero == std::byte{0}) continue;
    put_eight<kSum>(nonzero, maps.negative[at / 8], of_digit, target.slot + at);
  }
  put_last_digits(maps, at, target);
}

}  // namespace

std::uint32_t unpack_rows(const std::byte* packed, std::uint32_t rows, const DecodeTarget& target) {
  return target.accumulate ? unpack_into<true>(packed, rows, target)
                           : unpack_into<false>(packed, rows, target);
}

void put_digits(const DigitMaps& maps, const DecodeTarget& target) {
  target.accumulate ? put_maps<true>(maps, target) : put_maps<false>(maps, target);
}

bool expand_runs(const ChunkBytes& codes, std::byte* packed, std::uint32_t bytes) {
  return expand_by<Block>(codes, packed, bytes);
}

Fault decode_chunk(const ChunkBytes& chunk, const DecodeTarget& target) {
  if (chunk.bytes == 0 || target.zeros_only) return decode_as_reference(chunk, target);
  const auto mode = static_cast<ChunkMode>(chunk.at[0]);
  if (mode == ChunkMode::kZeroRuns) return decode_runs(chunk, target);
  if (mode == ChunkMode::kRice) return decode_rice(chunk, target);
  const bool whole = mode == ChunkMode::kBase3 && chunk.bytes == 1 + packed_bytes(target.count);
  return whole ? decode_packed(chunk.at + 1, target) : decode_as_reference(chunk, target);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
