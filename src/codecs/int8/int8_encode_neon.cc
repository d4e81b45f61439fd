#include <cstdint>

#include <arm_neon.h>

#include "codecs/int8/int8_encode_ops.h"
#include "codecs/kernels/addends_neon.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

namespace {

struct Coded {
  int32x4_t codes[kVectors];
  float32x4_t left[kVectors];
};

// The quotient in float64, as the reference has it, to nearest, ties to even.
int32x4_t divided(float32x4_t x, float step) noexcept {
  const float64x2_t divisor = vdupq_n_f64(static_cast<double>(step));
  const float64x2_t low = vdivq_f64(vcvt_f64_f32(vget_low_f32(x)), divisor);
  const float64x2_t high = vdivq_f64(vcvt_high_f64_f32(x), divisor);
  return vcombine_s32(vmovn_s64(vcvtnq_s64_f64(low)), vmovn_s64(vcvtnq_s64_f64(high)));
}

// What is left of x without its code's value, two roundings.
[[gnu::always_inline]] inline float32x4_t left_of(float32x4_t x, int32x4_t codes, float32x4_t step) noexcept {
  return vsubq_f32(x, vmulq_f32(vcvtq_f32_s32(codes), step));
}

struct Lanes {
  using Floats = float32x4_t;
  static constexpr std::uint64_t kCount = 4;

  template <bool kAdds>
  [[gnu::always_inline]] static Floats load(const Addends& x, std::uint64_t i) noexcept {
    return four_of<kAdds>(x, i);
  }
  [[gnu::always_inline]] static void store(float* to, Floats floats) noexcept { vst1q_f32(to, floats); }

  // Codes by a product with 1/step, and by quotients where any of them might be another than the quotient's.
  [[gnu::always_inline]] static Coded coded(const float32x4_t (&x)[kVectors], float step,
                                            float inverse) noexcept {
    const float32x4_t steps = vdupq_n_f32(step);
    float32x4_t most = vdupq_n_f32(0);
    Coded coded{};
    for (unsigned k = 0; k < kVectors; ++k) {
      coded.codes[k] = vcvtnq_s32_f32(vmulq_f32(x[k], vdupq_n_f32(inverse)));
      coded.left[k] = left_of(x[k], coded.codes[k], steps);
      most = vmaxq_f32(most, vabsq_f32(coded.left[k]));
    }
    if (vmaxvq_f32(most) <= kSurelyNearest * step) [[likely]]
      return coded;
    for (unsigned k = 0; k < kVectors; ++k) {
      coded.codes[k] = divided(x[k], step);
      coded.left[k] = left_of(x[k], coded.codes[k], steps);
    }
    return coded;
  }

  [[gnu::always_inline]] static void store_codes(const int32x4_t (&codes)[kVectors],
                                                 std::byte* payload) noexcept {
    const int16x8_t first = vmovn_high_s32(vmovn_s32(codes[0]), codes[1]);
    const int16x8_t last = vmovn_high_s32(vmovn_s32(codes[2]), codes[3]);
    const int8x16_t packed = vmovn_high_s16(vmovn_s16(first), last);
    vst1q_u8(reinterpret_cast<std::uint8_t*>(payload), vreinterpretq_u8_s8(packed));
  }
};

}  // namespace

std::uint32_t sum_up(const Addends& x) {
  return add_up_neon(x);
}

void encode(const Addends& x, float step, std::byte* payload) {
  encode_by<Lanes>(x, step, payload);
}

}  // namespace deltawire::int8::DELTAWIRE_TARGET
