#include <cstdint>

#include <arm_neon.h>

#include "codecs/int8/int8_ops.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

namespace {

constexpr std::uint64_t kStep = 16;  // values at a time: a vector of codes

// For the last few values, which fill no vector.
const Kernels& rest_kernels() noexcept {
  return kernels_for(TargetId::kReference);
}

uint8x16_t load_codes(const std::byte* payload) noexcept {
  return vld1q_u8(reinterpret_cast<const std::uint8_t*>(payload));
}

uint8x16_t unused_codes(uint8x16_t codes) noexcept {
  return vceqq_u8(codes, vdupq_n_u8(static_cast<std::uint8_t>(kUnusedCode)));
}

struct Factors {
  float32x4_t step;
  float32x4_t scale;
};

template <bool kAccumulates>
[[gnu::always_inline]] inline void put_eight(int16x8_t codes, const Factors& factors, float* at) noexcept {
  const int32x4_t halves[] = {vmovl_s16(vget_low_s16(codes)), vmovl_high_s16(codes)};
  for (unsigned k = 0; k < 2; ++k) {
    float* const to = at + 4 * k;
    const float32x4_t stepped = vmulq_f32(vcvtq_f32_s32(halves[k]), factors.step);
    const float32x4_t values = vmulq_f32(factors.scale, stepped);
    vst1q_f32(to, kAccumulates ? vaddq_f32(vld1q_f32(to), values) : values);
  }
}

// Leaves in `i` how far whole steps went. Returns whether no code there is -128.
template <bool kAccumulates>
[[gnu::always_inline]] inline bool decode_whole(const std::byte* payload, std::uint64_t count, float step,
                                                float scale, float* slot, std::uint64_t& i) noexcept {
  const Factors factors = {vdupq_n_f32(step), vdupq_n_f32(scale)};
  uint8x16_t bad = vdupq_n_u8(0);
  for (; i + kStep <= count; i += kStep) {
    const uint8x16_t codes = load_codes(payload + i);
    bad = vorrq_u8(bad, unused_codes(codes));
    const int8x16_t numbers = vreinterpretq_s8_u8(codes);
    put_eight<kAccumulates>(vmovl_s8(vget_low_s8(numbers)), factors, slot + i);
    put_eight<kAccumulates>(vmovl_high_s8(numbers), factors, slot + i + 8);
  }
  return vmaxvq_u8(bad) == 0;
}

}  // namespace

std::uint64_t find_bad_code(const std::byte* payload, std::uint64_t count, bool zeros_only) {
  std::uint64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const uint8x16_t codes = load_codes(payload + i);
    if (vmaxvq_u8(zeros_only ? codes : unused_codes(codes)) != 0) break;
  }
  return i + rest_kernels().find_bad_code(payload + i, count - i, zeros_only);
}

bool decode_overwrite(const std::byte* payload, std::uint64_t count, float step, float scale, float* slot) {
  std::uint64_t i = 0;
  const bool good = decode_whole<false>(payload, count, step, scale, slot, i);
  return rest_kernels().decode_overwrite(payload + i, count - i, step, scale, slot + i) && good;
}

bool decode_accumulate(const std::byte* payload, std::uint64_t count, float step, float scale, float* slot) {
  std::uint64_t i = 0;
  const bool good = decode_whole<true>(payload, count, step, scale, slot, i);
  return rest_kernels().decode_accumulate(payload + i, count - i, step, scale, slot + i) && good;
}

}  // namespace deltawire::int8::DELTAWIRE_TARGET
