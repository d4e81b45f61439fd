#include <cstdint>

#include <arm_neon.h>

#include "base/float_bits.h"
#include "codecs/bf16/bf16_ops.h"

namespace deltawire::bf16::DELTAWIRE_TARGET {

namespace {

constexpr std::uint64_t kLanes = 4;

// For the last few values, which fill no vector.
const Kernels& rest_kernels() noexcept {
  return kernels_for(TargetId::kReference);
}

// bf16_of of four values, each in the upper half of its lane; the lower halves mean nothing.
uint32x4_t rounded(uint32x4_t bits) noexcept {
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t near = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7FFF)), odd);
  const uint32x4_t magnitude = vandq_u32(bits, vdupq_n_u32(kMagnitudeMask));
  const uint32x4_t nan = vcgtq_u32(magnitude, vdupq_n_u32(kInfinityBits));
  const uint32x4_t quiet =
      vorrq_u32(vandq_u32(bits, vdupq_n_u32(0x80000000)), vdupq_n_u32(std::uint32_t{0x7FC0} << 16));
  return vbslq_u32(nan, quiet, near);
}

// Rounds four of in + residual and leaves in the residual what the rounding took.
uint32x4_t round_with_feedback(const float* in, float* residual) noexcept {
  const float32x4_t x = vaddq_f32(vld1q_f32(in), vld1q_f32(residual));
  const uint32x4_t bits = vandq_u32(rounded(vreinterpretq_u32_f32(x)), vdupq_n_u32(0xFFFF0000));
  const uint32x4_t magnitude = vandq_u32(bits, vdupq_n_u32(kMagnitudeMask));
  const uint32x4_t finite = vcltq_u32(magnitude, vdupq_n_u32(kInfinityBits));
  const uint32x4_t left = vreinterpretq_u32_f32(vsubq_f32(x, vreinterpretq_f32_u32(bits)));
  vst1q_f32(residual, vreinterpretq_f32_u32(vandq_u32(left, finite)));
  return bits;
}

void store_pair(uint32x4_t low, uint32x4_t high, std::byte* payload) noexcept {
  const uint16x8_t kept = vcombine_u16(vshrn_n_u32(low, 16), vshrn_n_u32(high, 16));
  vst1q_u8(reinterpret_cast<std::uint8_t*>(payload), vreinterpretq_u8_u16(kept));
}

void encode(const float* in, float* residual, std::uint64_t count, std::byte* payload) {
  std::uint64_t i = 0;
  if (residual == nullptr) {
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      const uint32x4_t low = vreinterpretq_u32_f32(vld1q_f32(in + i));
      const uint32x4_t high = vreinterpretq_u32_f32(vld1q_f32(in + i + kLanes));
      store_pair(rounded(low), rounded(high), payload + i * kValueBytes);
    }
  } else {
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      const uint32x4_t low = round_with_feedback(in + i, residual + i);
      const uint32x4_t high = round_with_feedback(in + i + kLanes, residual + i + kLanes);
      store_pair(low, high, payload + i * kValueBytes);
    }
  }
  float* const rest = residual == nullptr ? nullptr : residual + i;
  rest_kernels().encode(in + i, rest, count - i, payload + i * kValueBytes);
}

float32x4_t load_values(const std::byte* payload) noexcept {
  const uint16x4_t stored = vreinterpret_u16_u8(vld1_u8(reinterpret_cast<const std::uint8_t*>(payload)));
  return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(stored), 16));
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  const std::uint64_t end = count / kLanes * kLanes;
  if (scale == 1.0F) {  // a vector keeps the bits of a NaN
    for (std::uint64_t i = 0; i < end; i += kLanes) {
      vst1q_f32(slot + i, load_values(payload + i * kValueBytes));
    }
  } else {
    const float32x4_t factor = vdupq_n_f32(scale);
    for (std::uint64_t i = 0; i < end; i += kLanes) {
      vst1q_f32(slot + i, vmulq_f32(factor, load_values(payload + i * kValueBytes)));
    }
  }
  rest_kernels().decode_overwrite(payload + end * kValueBytes, count - end, scale, slot + end);
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  const float32x4_t factor = vdupq_n_f32(scale);
  const std::uint64_t end = count / kLanes * kLanes;
  for (std::uint64_t i = 0; i < end; i += kLanes) {
    const float32x4_t scaled = vmulq_f32(factor, load_values(payload + i * kValueBytes));
    vst1q_f32(slot + i, vaddq_f32(vld1q_f32(slot + i), scaled));
  }
  rest_kernels().decode_accumulate(payload + end * kValueBytes, count - end, scale, slot + end);
}

}  // namespace

extern constexpr Kernels kKernels = {encode, decode_overwrite, decode_accumulate};

}  // namespace deltawire::bf16::DELTAWIRE_TARGET
