#include <cstdint>

#include <immintrin.h>

#include "codecs/int8/int8_encode_ops.h"
#include "codecs/kernels/addends_avx2.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

namespace {

struct Coded {
  __m512i codes[kVectors];  // in lanes of 32 bits
  __m512 left[kVectors];
};

// The quotient in float64, as the reference has it. A conversion rounds to nearest, ties to even.
__m512i divided(__m512 x, float step) noexcept {
  const __m512d divisor = _mm512_set1_pd(static_cast<double>(step));
  const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
  const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
  const __m512i codes = _mm512_castsi256_si512(_mm512_cvtpd_epi32(_mm512_div_pd(low, divisor)));
  return _mm512_inserti32x8(codes, _mm512_cvtpd_epi32(_mm512_div_pd(high, divisor)), 1);
}

// What is left of x without its code's value, two roundings.
[[gnu::always_inline]] inline __m512 left_of(__m512 x, __m512i codes, __m512 step) noexcept {
  return _mm512_sub_ps(x, _mm512_mul_ps(_mm512_cvtepi32_ps(codes), step));
}

struct Lanes {
  using Floats = __m512;
  static constexpr std::uint64_t kCount = 16;

  template <bool kAdds>
  [[gnu::always_inline]] static Floats load(const Addends& x, std::uint64_t i) noexcept {
    const __m512 in = _mm512_loadu_ps(x.in + i);
    return kAdds ? _mm512_add_ps(in, _mm512_loadu_ps(x.residual + i)) : in;
  }
  [[gnu::always_inline]] static void store(float* to, Floats floats) noexcept {
    _mm512_storeu_ps(to, floats);
  }

  // Codes by a product with 1/step, and by quotients where any of them might be another than the quotient's.
  [[gnu::always_inline]] static Coded coded(const __m512 (&x)[kVectors], float step, float inverse) noexcept {
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

  [[gnu::always_inline]] static void store_codes(const __m512i (&codes)[kVectors],
                                                 std::byte* payload) noexcept {
    for (unsigned k = 0; k < kVectors; ++k) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(payload + 16 * k), _mm512_cvtepi32_epi8(codes[k]));
    }
  }
};

}  // namespace

std::uint32_t sum_up(const Addends& x) {
  return add_up_avx2(x);
}

void encode(const Addends& x, float step, std::byte* payload) {
  encode_by<Lanes>(x, step, payload);
}

}  // namespace deltawire::int8::DELTAWIRE_TARGET
