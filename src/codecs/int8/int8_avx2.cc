#include "codecs/int8/int8_avx2.h"

#include "codecs/int8/int8_encode_ops.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

namespace {

struct Lanes {
  using Floats = __m256;
  using Codes = __m256i;  // in lanes of 32 bits
  static constexpr std::uint64_t kCount = 8;

  template <bool kAdds>
  [[gnu::always_inline]] static Floats load(const Addends& x, std::uint64_t i) noexcept {
    return eight_of<kAdds>(x, i);
  }
  [[gnu::always_inline]] static void store(float* to, Floats floats) noexcept {
    _mm256_storeu_ps(to, floats);
  }
  [[gnu::always_inline]] static Floats all(float value) noexcept { return _mm256_set1_ps(value); }

  [[gnu::always_inline]] static Codes nearest(Floats x, Floats inverse) noexcept {
    return _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse));
  }
  [[gnu::always_inline]] static Codes nearest_quotient(Floats x, float step) noexcept {
    const __m256d divisor = _mm256_set1_pd(static_cast<double>(step));
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    return _mm256_setr_m128i(_mm256_cvtpd_epi32(_mm256_div_pd(low, divisor)),
                             _mm256_cvtpd_epi32(_mm256_div_pd(high, divisor)));
  }
  [[gnu::always_inline]] static Floats left_of(Floats x, Codes codes, Floats step) noexcept {
    return _mm256_sub_ps(x, _mm256_mul_ps(_mm256_cvtepi32_ps(codes), step));
  }

  [[gnu::always_inline]] static Floats larger(Floats most, Floats left) noexcept {
    return _mm256_max_ps(most, _mm256_andnot_ps(_mm256_set1_ps(-0.0F), left));
  }
  [[gnu::always_inline]] static bool any_above(Floats most, float limit) noexcept {
    return _mm256_movemask_ps(_mm256_cmp_ps(most, _mm256_set1_ps(limit), _CMP_GT_OQ)) != 0;
  }

  // packs leaves the codes in groups of four, in the order 0, 8, 16, 24, 4, 12, 20, 28.
  [[gnu::always_inline]] static void store_codes(const Codes (&codes)[kVectors],
                                                 std::byte* payload) noexcept {
    const __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]), _mm256_packs_epi32(codes[2], codes[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(payload), _mm256_permutevar8x32_epi32(packed, order));
  }
};

}  // namespace

extern constexpr Kernels kKernels = {encode_by<Lanes>, find_bad_code, decode_overwrite, decode_accumulate};

}  // namespace deltawire::int8::DELTAWIRE_TARGET
