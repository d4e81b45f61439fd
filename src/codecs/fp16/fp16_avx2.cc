// F16C converts eight values with one instruction.
#include <cstdint>

#include <immintrin.h>

#include "base/float_bits.h"
#include "codecs/fp16/fp16_ops.h"
#include "codecs/kernels/half_floats_avx2.h"
#include "codecs/kernels/magnitude.h"

namespace deltawire::fp16::DELTAWIRE_TARGET {

namespace {

struct Fp16 {
  using Codes = __m128i;

  // Infinity becomes the largest value. REQUIRES: no NaN.
  [[gnu::always_inline]] static Codes round(__m256 x) noexcept {
    const __m128i codes = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    const __m128i magnitude = _mm_and_si128(codes, _mm_set1_epi16(0x7FFF));
    const __m128i sign = _mm_andnot_si128(_mm_set1_epi16(0x7FFF), codes);
    return _mm_or_si128(sign, _mm_min_epu16(magnitude, _mm_set1_epi16(0x7BFF)));
  }

  [[gnu::always_inline]] static __m256 error(__m256 x, Codes codes) noexcept {
    return _mm256_sub_ps(x, _mm256_cvtph_ps(codes));
  }

  [[gnu::always_inline]] static void store(Codes low, Codes high, std::byte* to) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_set_m128i(high, low));
  }

  [[gnu::always_inline]] static __m256 load(const std::byte* from) noexcept {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }

  [[gnu::always_inline]] static const Kernels& scalar() noexcept { return kernels_for(TargetId::kReference); }
};

bool all_finite(const float* in, const float* residual, std::uint64_t count) {
  return largest_magnitude(in, residual, count) < kInfinityBits;
}

void encode(const float* in, const float* residual, float* left, std::uint64_t count, std::byte* payload) {
  encode_halves<Fp16>(in, residual, left, count, payload);
}

std::uint64_t find_refused(const std::byte* payload, std::uint64_t count) {
  constexpr std::uint64_t kCodes = 16;
  const __m256i infinity = _mm256_set1_epi16(0x7C00);
  std::uint64_t i = 0;
  for (; i + kCodes <= count; i += kCodes) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(payload + i * kValueBytes));
    const __m256i refused = _mm256_cmpeq_epi16(_mm256_and_si256(codes, infinity), infinity);
    if (_mm256_testz_si256(refused, refused) == 0) break;
  }
  return i + Fp16::scalar().find_refused(payload + i * kValueBytes, count - i);
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  overwrite_with_halves<Fp16>(payload, count, scale, slot);
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  accumulate_halves<Fp16>(payload, count, scale, slot);
}

}  // namespace

extern constexpr Kernels kKernels = {all_finite, encode, find_refused, decode_overwrite, decode_accumulate};

}  // namespace deltawire::fp16::DELTAWIRE_TARGET
