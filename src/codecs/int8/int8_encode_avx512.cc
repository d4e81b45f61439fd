#include <cstdint>

#include <immintrin.h>

#include "codecs/int8/int8_ops.h"
#include "codecs/kernels/addends_avx2.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

namespace {

constexpr std::uint64_t kStep = 64;  // values at a time
constexpr unsigned kVectors = 4;

// A code stands if what it leaves is at most so many steps. It is x's nearest whole number then: rounding
// takes less than 2^-17 of a step from what is left, 127 * 2^-24 in the value and 2^-25 in the difference.
constexpr float kSurelyNearest = 0.5F - 0x1p-15F;

struct Coded {
  __m512i codes[kVectors];  // in lanes of 32 bits
  __m512 left[kVectors];
};

// For the first and last few values, which fill no vector.
const Kernels& rest_kernels() noexcept {
  return kernels_for(TargetId::kReference);
}

// The quotient in float64, as the reference has it. A conversion rounds to nearest, ties to even.
__m512i divided(__m512 x, float step) noexcept {
  const __m512d divisor = _mm512_set1_pd(static_cast<double>(step));
  const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
  const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
  const __m512i codes = _mm512_castsi256_si512(_mm512_cvtpd_epi32(_mm512_div_pd(low, divisor)));
  return _mm512_inserti32x8(codes, _mm512_cvtpd_epi32(_mm512_div_pd(high, divisor)), 1);
}

template <bool kAdds>
[[gnu::always_inline]] inline __m512 sixteen_of(const Addends& x, std::uint64_t i) noexcept {
  const __m512 in = _mm512_loadu_ps(x.in + i);
  return kAdds ? _mm512_add_ps(in, _mm512_loadu_ps(x.residual + i)) : in;
}

// What is left of x without its code's value, two roundings.
[[gnu::always_inline]] inline __m512 left_of(__m512 x, __m512i codes, __m512 step) noexcept {
  return _mm512_sub_ps(x, _mm512_mul_ps(_mm512_cvtepi32_ps(codes), step));
}

// Codes by a product with 1/step, and by quotients where any of them might be another than the quotient's.
[[gnu::always_inline]] inline Coded coded(const __m512 (&x)[kVectors], float step, float inverse) noexcept {
  const __m512 steps = _mm512_set1_ps(step);
  __m512 most = _mm512_setzero_ps();
  Coded coded{};
  for (unsigned k = 0; k < kVectors; ++k) {
    coded.codes[k] = _mm512_cvtps_epi32(_mm512_mul_ps(x[k], _mm512_set1_ps(inverse)));
    coded.left[k] = left_of(x[k], coded.codes[k], steps);
    most = _mm512_max_ps(most, _mm512_abs_ps(coded.left[k]));
  }
  const __m512 surely = _mm512_set1_ps(kSurelyNearest * step);
  if (_mm512_cmp_ps_mask(most, surely, _CMP_GT_OQ) == 0) [[likely]]
    return coded;
  for (unsigned k = 0; k < kVectors; ++k) {
    coded.codes[k] = divided(x[k], step);
    coded.left[k] = left_of(x[k], coded.codes[k], steps);
  }
  return coded;
}

[[gnu::always_inline]] inline void store_codes(const __m512i (&codes)[kVectors],
                                               std::byte* payload) noexcept {
  for (unsigned k = 0; k < kVectors; ++k) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(payload + 16 * k), _mm512_cvtepi32_epi8(codes[k]));
  }
}

// Returns how many values whole steps took.
template <bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline std::uint64_t encode_whole(const Addends& x, float step,
                                                         std::byte* payload) noexcept {
  const float inverse = 1.0F / step;
  std::uint64_t i = 0;
  for (; i + kStep <= x.count; i += kStep) {
    __m512 sums[kVectors];
    for (unsigned k = 0; k < kVectors; ++k) sums[k] = sixteen_of<kAdds>(x, i + 16 * k);
    const Coded each = coded(sums, step, inverse);
    store_codes(each.codes, payload + i);
    for (unsigned k = 0; kKeeps && k < kVectors; ++k) _mm512_storeu_ps(x.left + i + 16 * k, each.left[k]);
  }
  return i;
}

}  // namespace

std::uint32_t sum_up(const Addends& x) {
  return add_up_avx2(x);
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
