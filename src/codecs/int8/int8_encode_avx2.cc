#include <cstdint>

#include <immintrin.h>

#include "codecs/int8/int8_encode_ops.h"
#include "codecs/kernels/addends_avx2.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

namespace {

struct Coded {
  __m256i codes[kVectors];  // in lanes of 32 bits
  __m256 left[kVectors];
};

// The quotient in float64, as the reference has it. A conversion rounds to nearest, ties to even.
__m256i divided(__m256 x, float step) noexcept {
  const __m256d divisor = _mm256_set1_pd(static_cast<double>(step));
  const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
  const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
  return _mm256_setr_m128i(_mm256_cvtpd_epi32(_mm256_div_pd(low, divisor)),
                           _mm256_cvtpd_epi32(_mm256_div_pd(high, divisor)));
}

// What is left of x without its code's value, two roundings.
[[gnu::always_inline]] inline __m256 left_of(__m256 x, __m256i codes, __m256 step) noexcept {
  return _mm256_sub_ps(x, _mm256_mul_ps(_mm256_cvtepi32_ps(codes), step));
}

struct Lanes {
  using Floats = __m256;
  static constexpr std::uint64_t kCount = 8;

  template <bool kAdds>
  [[gnu::always_inline]] static Floats load(const Addends& x, std::uint64_t i) noexcept {
    return eight_of<kAdds>(x, i);
  }
  [[gnu::always_inline]] static void store(float* to, Floats floats) noexcept {
    _mm256_storeu_ps(to, floats);
  }

  // Codes by a product with 1/step, and by quotients where any of them might be another than the quotient's.
  [[gnu::always_inline]] static Coded coded(const __m256 (&x)[kVectors], float step, float inverse) noexcept {
    const __m256 steps = _mm256_set1_ps(step);
    __m256 most = _mm256_setzero_ps();
    Coded coded{};
    for (unsigned k = 0; k < kVectors; ++k) {
      coded.codes[k] = _mm256_cvtps_epi32(_mm256_mul_ps(x[k], _mm256_set1_ps(inverse)));
      coded.left[k] = left_of(x[k], coded.codes[k], steps);
      most = _mm256_max_ps(most, _mm256_andnot_ps(_mm256_set1_ps(-0.0F), coded.left[k]));
    }
    const __m256 unsure = _mm256_cmp_ps(most, _mm256_set1_ps(kSurelyNearest * step), _CMP_GT_OQ);
    if (_mm256_movemask_ps(unsure) == 0) [[likely]]
      return coded;
    for (unsigned k = 0; k < kVectors; ++k) {
      coded.codes[k] = divided(x[k], step);
      coded.left[k] = left_of(x[k], coded.codes[k], steps);
    }
    return coded;
  }

  // packs leaves the codes in groups of four, in the order 0, 8, 16, 24, 4, 12, 20, 28.
  [[gnu::always_inline]] static void store_codes(const __m256i (&codes)[kVectors],
                                                 std::byte* payload) noexcept {
    const __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]), _mm256_packs_epi32(codes[2], codes[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(payload), _mm256_permutevar8x32_epi32(packed, order));
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
