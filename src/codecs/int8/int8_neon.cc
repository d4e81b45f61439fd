#include <cstdint>

#include <arm_neon.h>

#include "codecs/int8/int8_encode_ops.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

namespace {

struct Lanes {
  using Floats = float32x4_t;
  using Codes = int32x4_t;  // in lanes of 32 bits
  static constexpr std::uint64_t kCount = 4;

  template <bool kAdds>
  [[gnu::always_inline]] static Floats load(const Addends& x, std::uint64_t i) noexcept {
    const float32x4_t in = vld1q_f32(x.in + i);
    return kAdds ? vaddq_f32(in, vld1q_f32(x.residual + i)) : in;
  }
  [[gnu::always_inline]] static void store(float* to, Floats floats) noexcept { vst1q_f32(to, floats); }
  [[gnu::always_inline]] static Floats all(float value) noexcept { return vdupq_n_f32(value); }

  [[gnu::always_inline]] static Codes nearest(Floats x, Floats inverse) noexcept {
    return vcvtnq_s32_f32(vmulq_f32(x, inverse));
  }
  [[gnu::always_inline]] static Codes nearest_quotient(Floats x, float step) noexcept {
    const float64x2_t divisor = vdupq_n_f64(static_cast<double>(step));
    const float64x2_t low = vdivq_f64(vcvt_f64_f32(vget_low_f32(x)), divisor);
    const float64x2_t high = vdivq_f64(vcvt_high_f64_f32(x), divisor);
    return vcombine_s32(vmovn_s64(vcvtnq_s64_f64(low)), vmovn_s64(vcvtnq_s64_f64(high)));
  }
  [[gnu::always_inline]] static Floats left_of(Floats x, Codes codes, Floats step) noexcept {
    return vsubq_f32(x, vmulq_f32(vcvtq_f32_s32(codes), step));
  }

  [[gnu::always_inline]] static Floats larger(Floats most, Floats left) noexcept {
    return vmaxq_f32(most, vabsq_f32(left));
  }
  [[gnu::always_inline]] static bool any_above(Floats most, float limit) noexcept {
    return !(vmaxvq_f32(most) <= limit);
  }

  [[gnu::always_inline]] static void store_codes(const Codes (&codes)[kVectors],
                                                 std::byte* payload) noexcept {
    const int16x8_t first = vmovn_high_s32(vmovn_s32(codes[0]), codes[1]);
    const int16x8_t last = vmovn_high_s32(vmovn_s32(codes[2]), codes[3]);
    const int8x16_t packed = vmovn_high_s16(vmovn_s16(first), last);
    vst1q_u8(reinterpret_cast<std::uint8_t*>(payload), vreinterpretq_u8_s8(packed));
  }
};

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

}  // namespace

extern constexpr Kernels kKernels = {encode_by<Lanes>, find_bad_code, decode_overwrite, decode_accumulate};

}  // namespace deltawire::int8::DELTAWIRE_TARGET
