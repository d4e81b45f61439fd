#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/kernels/vectors_avx2.h"
#include "codecs/minifloat/minifloat_ops.h"

namespace deltawire::minifloat::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 8;
constexpr unsigned kVectors = kGroup / kLanes;

__m256i all(std::uint32_t value) noexcept {
  return _mm256_set1_epi32(static_cast<int>(value));
}

// The reference's code_of(), without a sign.
template <Format kFormat>
[[gnu::always_inline]] inline __m256i magnitude_codes(__m256i magnitudes) noexcept {
  constexpr Minifloat kForm = kIts<kFormat>;
  constexpr int kDropped = static_cast<int>(23 - kForm.mantissa);
  constexpr std::uint32_t kBias = 127 - kForm.bias;
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitudes, kDropped), all(1));
  const __m256i shifted = _mm256_add_epi32(magnitudes, all((1U << (kDropped - 1)) - 1 - (kBias << 23)));
  const __m256i normal = _mm256_srli_epi32(_mm256_add_epi32(shifted, odd), kDropped);
  const __m256 ruler = _mm256_set1_ps(power_of_two(24 - static_cast<int>(kForm.bias + kForm.mantissa)));
  const __m256 ruled = _mm256_add_ps(_mm256_castsi256_ps(magnitudes), ruler);
  const __m256i subnormal = _mm256_sub_epi32(_mm256_castps_si256(ruled), _mm256_castps_si256(ruler));
  const __m256i is_normal = _mm256_cmpgt_epi32(magnitudes, all(((kBias + 1) << 23) - 1));
  return _mm256_min_epi32(_mm256_blendv_epi8(subnormal, normal, is_normal), all(kForm.largest));
}

// The reference's number_of(), for codes without sign.
template <Format kFormat>
[[gnu::always_inline]] inline __m256 magnitudes_of(__m256i codes) noexcept {
  constexpr Minifloat kForm = kIts<kFormat>;
  const __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(codes, static_cast<int>(23 - kForm.mantissa)),
                                          all((127 - kForm.bias) << 23));
  const __m256 subnormal =
      _mm256_mul_ps(_mm256_cvtepi32_ps(codes),
                    _mm256_set1_ps(power_of_two(1 - static_cast<int>(kForm.bias + kForm.mantissa))));
  const __m256i is_normal = _mm256_cmpgt_epi32(codes, all((1U << kForm.mantissa) - 1));
  return _mm256_blendv_ps(subnormal, _mm256_castsi256_ps(normal), _mm256_castsi256_ps(is_normal));
}

struct Group {
  [[gnu::always_inline]] static std::uint32_t add(const Addends& x, float* sums) noexcept {
    __m256i largest = _mm256_setzero_si256();
    for (std::uint32_t i = 0; i < kGroup; i += kLanes) {
      const __m256 sum = x.residual != nullptr ? eight_of<true>(x, i) : eight_of<false>(x, i);
      _mm256_storeu_ps(sums + i, sum);
      largest = larger_of(largest, sum);
    }
    return largest_of_eight(largest);
  }

  template <Format kFormat>
  [[gnu::always_inline]] static void encode(float* sums, float inverse, float unit, std::byte* to) noexcept {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    __m256i codes[kVectors];
    for (unsigned k = 0; k < kVectors; ++k) {
      const __m256 x = _mm256_loadu_ps(sums + kLanes * k);
      const __m256 y = _mm256_mul_ps(x, _mm256_set1_ps(inverse));
      const __m256 negative = _mm256_and_ps(y, sign);
      const __m256i magnitudes = magnitude_codes<kFormat>(_mm256_castps_si256(_mm256_andnot_ps(sign, y)));
      const __m256 number = _mm256_or_ps(magnitudes_of<kFormat>(magnitudes), negative);
      _mm256_storeu_ps(sums + kLanes * k, _mm256_sub_ps(x, _mm256_mul_ps(number, _mm256_set1_ps(unit))));
      constexpr int kToSign = static_cast<int>(32 - kIts<kFormat>.bits);
      codes[k] = _mm256_or_si256(magnitudes, _mm256_srli_epi32(_mm256_castps_si256(negative), kToSign));
    }
    // packs leaves the codes in groups of four, in the order 0, 8, 16, 24, 4, 12, 20, 28.
    const __m256i packed =
        _mm256_packus_epi16(_mm256_packs_epi32(codes[0], codes[1]), _mm256_packs_epi32(codes[2], codes[3]));
    const __m256i bytes = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    if (kIts<kFormat>.bits == 8) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
      return;
    }
    const __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(0x1001));
    const __m128i halves =
        _mm_packus_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
  }

  template <Format kFormat, bool kAccumulates>
  [[gnu::always_inline]] static void decode(const std::byte* from, float unit, float scale,
                                            float* slot) noexcept {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    __m128i bytes[2];
    if constexpr (kIts<kFormat>.bits == 8) {
      bytes[0] = first;
      bytes[1] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16));
    } else {
      const __m128i low = _mm_and_si128(first, _mm_set1_epi8(0xF));
      const __m128i high = _mm_and_si128(_mm_srli_epi16(first, 4), _mm_set1_epi8(0xF));
      bytes[0] = _mm_unpacklo_epi8(low, high);
      bytes[1] = _mm_unpackhi_epi8(low, high);
    }
    for (unsigned k = 0; k < kVectors; ++k) {
      const __m128i eight = k % 2 == 0 ? bytes[k / 2] : _mm_srli_si128(bytes[k / 2], kLanes);
      const __m256i codes = _mm256_cvtepu8_epi32(eight);
      const __m256i magnitudes = _mm256_and_si256(codes, all((1U << (kIts<kFormat>.bits - 1)) - 1));
      const __m256i signs = _mm256_slli_epi32(codes, static_cast<int>(32 - kIts<kFormat>.bits));
      const __m256 negative = _mm256_and_ps(_mm256_castsi256_ps(signs), _mm256_set1_ps(-0.0F));
      const __m256 number = _mm256_or_ps(magnitudes_of<kFormat>(magnitudes), negative);
      const __m256 value = _mm256_mul_ps(_mm256_set1_ps(scale), _mm256_mul_ps(number, _mm256_set1_ps(unit)));
      float* const at = slot + kLanes * k;
      _mm256_storeu_ps(at, kAccumulates ? _mm256_add_ps(_mm256_loadu_ps(at), value) : value);
    }
  }
};

}  // namespace

extern constexpr Kernels kKernels =
    kKernelsBy<Group, Format::kE4M3, Format::kE5M2, Format::kE2M1, Format::kE3M0>;

}  // namespace deltawire::minifloat::DELTAWIRE_TARGET
