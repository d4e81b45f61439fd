// Kernels for NEON: 4 values, or 64 bytes, at a time.
#include <cstddef>
#include <cstdint>

#include <arm_neon.h>

#include "base/bit_functions.h"
#include "codecs/kernels/gathered_neon.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_rice_ops.h"
#include "codecs/threelc/threelc_vectors_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

// 64 bytes of a chunk, in which codes and zero bytes are looked for.
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

// Quantization.

constexpr std::uint32_t kLanes = 4;
constexpr std::uint32_t kVector = 16;  // bytes
constexpr std::uint32_t kQuarters = kRowBytes / kVector;

// Four values: -1, 0 or +1 in each 32-bit lane; their new residual is stored.
template <bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline int32x4_t quantize_four(const QuantizeInput& row, std::uint32_t at) noexcept {
  const uint32x4_t m = vreinterpretq_u32_f32(vdupq_n_f32(row.scale.m));
  float32x4_t x = vld1q_f32(row.in + at);
  if (kAdds) x = vaddq_f32(x, vld1q_f32(row.residual + at));
  const uint32x4_t above = vcgeq_f32(x, vdupq_n_f32(row.scale.half));
  const uint32x4_t below = vcleq_f32(x, vdupq_n_f32(-row.scale.half));
  if (kKeeps) {  // x - 0 is x, and so is x + -0: bit for bit
    const float32x4_t taken = vsubq_f32(x, vreinterpretq_f32_u32(vandq_u32(above, m)));
    const uint32x4_t given = vbslq_u32(below, m, vdupq_n_u32(0x80000000));
    vst1q_f32(row.left + at, vaddq_f32(taken, vreinterpretq_f32_u32(given)));
  }
  return vreinterpretq_s32_u32(vsubq_u32(below, above));
}

// 16 values: -1, 0 or +1 in each byte, in their order.
template <bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline int8x16_t quantize_quarter(const QuantizeInput& row,
                                                         std::uint32_t at) noexcept {
  int32x4_t digits[4];
  for (std::uint32_t i = 0; i < 4; ++i) digits[i] = quantize_four<kAdds, kKeeps>(row, at + i * kLanes);
  const int16x8_t first = vmovn_high_s32(vmovn_s32(digits[0]), digits[1]);
  const int16x8_t last = vmovn_high_s32(vmovn_s32(digits[2]), digits[3]);
  return vmovn_high_s16(vmovn_s16(first), last);
}

struct Row {
  template <bool kAdds, bool kKeeps>
  [[gnu::always_inline]] static std::uint64_t quantize(const QuantizeInput& row, std::byte* packed,
                                                       RowDigits& digits) noexcept {
    int8x16_t bytes[kQuarters] = {vdupq_n_s8(0), vdupq_n_s8(0), vdupq_n_s8(0), vdupq_n_s8(0)};
    for (std::uint32_t p = 0; p < kDigitsPerByte; ++p) {
      uint8x16_t positive[kQuarters];
      uint8x16_t negative[kQuarters];
      for (std::uint32_t i = 0; i < kQuarters; ++i) {
        const int8x16_t q = quantize_quarter<kAdds, kKeeps>(row, p * kRowBytes + i * kVector);
        bytes[i] = vaddq_s8(vaddq_s8(bytes[i], bytes[i]), vaddq_s8(bytes[i], q));
        positive[i] = vcgtzq_s8(q);
        negative[i] = vcltzq_s8(q);
      }
      digits.positive[p] = bits_of_bytes(positive);
      digits.negative[p] = bits_of_bytes(negative);
    }
    const uint8x16_t zero_byte = vdupq_n_u8(static_cast<std::uint8_t>(kZeroByte));
    uint8x16_t zeros[kQuarters];
    for (std::uint32_t i = 0; i < kQuarters; ++i) {
      const uint8x16_t sum = vaddq_u8(vreinterpretq_u8_s8(bytes[i]), zero_byte);
      vst1q_u8(reinterpret_cast<std::uint8_t*>(packed + i * kVector), sum);
      zeros[i] = vceqq_u8(sum, zero_byte);
    }
    return bits_of_bytes(zeros);
  }
};

}  // namespace

Quantized quantize(const QuantizeInput& input, std::byte* packed, const DigitMaps& maps) {
  return quantize_by<Row>(input, packed, maps);
}

std::uint32_t zero_runs(const std::byte* packed, std::uint32_t bytes, std::byte* out) {
  return zero_runs_by<Block>(packed, bytes, out);
}

// Reading Rice codes.
namespace {

struct Words {
  [[gnu::always_inline]] static std::uint64_t nonzero(const std::uint8_t* digits) noexcept {
    return ~Block::load(reinterpret_cast<const std::byte*>(digits)).equal(std::byte{0});
  }
};

}  // namespace

bool are_read_as_bytes(unsigned parameter) {
  return parameter <= kMostDenseParameter;
}

bool read_digits(const ChunkBytes& rice, std::uint32_t count, std::uint8_t* digits) {
  return read_digits_by<0, Words>(rice, count, digits);
}

bool read_rice(const ChunkBytes& rice, std::uint32_t count, const DigitMaps& maps) {
  Stream stream;
  return open_for_maps(rice, count, maps, stream) && read_codes(stream, count, maps);
}

bool scatter_rice(const ChunkBytes& rice, const DecodeTarget& target) {
  return scatter_rice_into(rice, target);
}

// Values of digits: those of 16 packed bytes at a time, and of 8 bits of maps.
namespace {

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

template <bool kSum>
void put_bytes(const std::uint8_t* digits, const DecodeTarget& target) noexcept {
  const Values of_digit = values_of(target);
  std::uint32_t at = 0;
  for (; at + 8 <= target.count; at += 8) {
    const uint8x8_t eight = vld1_u8(digits + at);
    const int16x8_t positive = vmovl_s8(vreinterpret_s8_u8(vceq_u8(eight, vdup_n_u8(kPositiveDigit))));
    const int16x8_t negative = vmovl_s8(vreinterpret_s8_u8(vceq_u8(eight, vdup_n_u8(kNegativeDigit))));
    put_four<kSum>(target.slot + at, vget_low_s16(positive), vget_low_s16(negative), of_digit);
    put_four<kSum>(target.slot + at + 4, vget_high_s16(positive), vget_high_s16(negative), of_digit);
  }
  put_last_digits(digits, at, target);
}

}  // namespace

std::uint32_t unpack_rows(const std::byte* packed, std::uint32_t rows, const DecodeTarget& target) {
  return target.accumulate ? unpack_into<true>(packed, rows, target)
                           : unpack_into<false>(packed, rows, target);
}

void put_digits(const DigitMaps& maps, const DecodeTarget& target) {
  target.accumulate ? put_maps<true>(maps, target) : put_maps<false>(maps, target);
}

void put_digit_bytes(const std::uint8_t* digits, const DecodeTarget& target) {
  target.accumulate ? put_bytes<true>(digits, target) : put_bytes<false>(digits, target);
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

extern constexpr Kernels kKernels = {quantize, zero_runs, reference::rice, decode_chunk};

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
