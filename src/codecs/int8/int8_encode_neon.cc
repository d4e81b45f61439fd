#include <cstdint>

#include <arm_neon.h>

#include "codecs/int8/int8_ops.h"
#include "codecs/kernels/addends_neon.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

namespace {

constexpr std::uint64_t kStep = 16;  // values at a time: a vector of codes
constexpr unsigned kVectors = 4;

// A code stands if what it leaves is at most so many steps. It is x's nearest whole number then: rounding
// takes less than 2^-17 of a step from what is left, 127 * 2^-24 in the value and 2^-25 in the difference.
constexpr float kSurelyNearest = 0.5F - 0x1p-15F;

struct Coded {
  int32x4_t codes[kVectors];
  float32x4_t left[kVectors];
};

// For the last few values, which fill no vector.
const Kernels& rest_kernels() noexcept {
  return kernels_for(TargetId::kReference);
}

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

// Codes by a product with 1/step, and by quotients where any of them might be another than the quotient's.
[[gnu::always_inline]] inline Coded coded(const float32x4_t (&x)[kVectors], float step,
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

[[gnu::always_inline]] inline void store_codes(const int32x4_t (&codes)[kVectors],
                                               std::byte* payload) noexcept {
  const int16x8_t first = vmovn_high_s32(vmovn_s32(codes[0]), codes[1]);
  const int16x8_t last = vmovn_high_s32(vmovn_s32(codes[2]), codes[3]);
  const int8x16_t packed = vmovn_high_s16(vmovn_s16(first), last);
  vst1q_u8(reinterpret_cast<std::uint8_t*>(payload), vreinterpretq_u8_s8(packed));
}

// Returns how many values whole steps took.
template <bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline std::uint64_t encode_whole(const Addends& x, float step,
                                                         std::byte* payload) noexcept {
  const float inverse = 1.0F / step;
  std::uint64_t i = 0;
  for (; i + kStep <= x.count; i += kStep) {
    float32x4_t sums[kVectors];
    for (unsigned k = 0; k < kVectors; ++k) sums[k] = four_of<kAdds>(x, i + 4 * k);
    const Coded each = coded(sums, step, inverse);
    store_codes(each.codes, payload + i);
    for (unsigned k = 0; kKeeps && k < kVectors; ++k) vst1q_f32(x.left + i + 4 * k, each.left[k]);
  }
  return i;
}

}  // namespace

std::uint32_t sum_up(const Addends& x) {
  return add_up_neon(x);
}

void encode(const Addends& x, float step, std::byte* payload) {
  std::uint64_t i = 0;
  if (step >= 0x1p-126F) {  // 1/step and a product with it have all their digits
    if (x.residual == nullptr) {
      i = x.left == nullptr ? encode_whole<false, false>(x, step, payload)
                            : encode_whole<false, true>(x, step, payload);
    } else {
      i = x.left == nullptr ? encode_whole<true, false>(x, step, payload)
                            : encode_whole<true, true>(x, step, payload);
    }
  }
  rest_kernels().encode(some_of(x, i, x.count - i), step, payload + i);
}

}  // namespace deltawire::int8::DELTAWIRE_TARGET
