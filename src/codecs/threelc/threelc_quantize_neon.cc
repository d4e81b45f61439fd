// The largest magnitude, and quantization, 4 values at a time.
#include <cstddef>
#include <cstdint>

#include <arm_neon.h>

#include "codecs/kernels/addends_neon.h"
#include "codecs/kernels/byte_mask_neon.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_rows_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

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

std::uint32_t largest(const Addends& addends) {
  return add_up_neon(
      {addends.in, addends.residual, addends.residual != nullptr ? addends.sum : nullptr, addends.count});
}

Quantized quantize(const QuantizeInput& input, std::byte* packed, const DigitMaps& maps) {
  return quantize_by<Row>(input, packed, maps);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
