#include <cstdint>

#include <immintrin.h>

#include "codecs/int8/int8_avx2.h"
#include "codecs/int8/int8_encode_ops.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

namespace {

struct Lanes {
  using Floats = __m512;
  using Codes = __m512i;  // in lanes of 32 bits
  static constexpr std::uint64_t kCount = 16;

  template <bool kAdds>
  [[gnu::always_inline]] static Floats load(const Addends& x, std::uint64_t i) noexcept {
    const __m512 in = _mm512_loadu_ps(x.in + i);
    return kAdds ? _mm512_add_ps(in, _mm512_loadu_ps(x.residual + i)) : in;
  }
  [[gnu::always_inline]] static void store(float* to, Floats floats) noexcept {
    _mm512_storeu_ps(to, floats);
  }
  [[gnu::always_inline]] static Floats all(float value) noexcept { return _mm512_set1_ps(value); }

  [[gnu::always_inline]] static Codes nearest(Floats x, Floats inverse) noexcept {
    return _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
  }
  [[gnu::always_inline]] static Codes nearest_quotient(Floats x, float step) noexcept {
    const __m512d divisor = _mm512_set1_pd(static_cast<double>(step));
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    const __m512i codes = _mm512_castsi256_si512(_mm512_cvtpd_epi32(_mm512_div_pd(low, divisor)));
    return _mm512_inserti32x8(codes, _mm512_cvtpd_epi32(_mm512_div_pd(high, divisor)), 1);
  }
  [[gnu::always_inline]] static Floats left_of(Floats x, Codes codes, Floats step) noexcept {
    return _mm512_sub_ps(x, _mm512_mul_ps(_mm512_cvtepi32_ps(codes), step));
  }

  [[gnu::always_inline]] static Floats larger(Floats most, Floats left) noexcept {
    return _mm512_max_ps(most, _mm512_abs_ps(left));
  }
  [[gnu::always_inline]] static bool any_above(Floats most, float limit) noexcept {
    return _mm512_cmp_ps_mask(most, _mm512_set1_ps(limit), _CMP_GT_OQ) != 0;
  }

  [[gnu::always_inline]] static void store_codes(const Codes (&codes)[kVectors],
                                                 std::byte* payload) noexcept {
    for (unsigned k = 0; k < kVectors; ++k) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(payload + 16 * k), _mm512_cvtepi32_epi8(codes[k]));
    }
  }
};

}  // namespace

extern constexpr Kernels kKernels = {encode_by<Lanes>, find_bad_code, decode_overwrite, decode_accumulate};

}  // namespace deltawire::int8::DELTAWIRE_TARGET
