#include <cstdint>

#include <immintrin.h>

#include "base/float_bits.h"
#include "codecs/bf16/bf16_ops.h"
#include "codecs/kernels/half_floats_avx2.h"

namespace deltawire::bf16::DELTAWIRE_TARGET {

namespace {

struct Bf16 {
  using Codes = __m256i;  // each still in a 32-bit lane

  // bf16_of of eight values.
  [[gnu::always_inline]] static Codes round(__m256 x) noexcept {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i near =
        _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(kMagnitudeMask));
    const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(kInfinityBits));
    const __m256i quiet = _mm256_or_si256(
        _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x8000)), _mm256_set1_epi32(0x7FC0));
    return _mm256_blendv_epi8(near, quiet, nan);
  }

  // 0 where the code is no finite value.
  [[gnu::always_inline]] static __m256 error(__m256 x, Codes codes) noexcept {
    const __m256i bits = _mm256_slli_epi32(codes, 16);
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(kMagnitudeMask));
    const __m256i finite = _mm256_cmpgt_epi32(_mm256_set1_epi32(kInfinityBits), magnitude);
    const __m256 taken = _mm256_sub_ps(x, _mm256_castsi256_ps(bits));
    return _mm256_and_ps(taken, _mm256_castsi256_ps(finite));
  }

  // packus leaves the codes in the order 0-3, 8-11, 4-7, 12-15.
  [[gnu::always_inline]] static void store(Codes low, Codes high, std::byte* to) noexcept {
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), packed);
  }

  [[gnu::always_inline]] static __m256 load(const std::byte* from) noexcept {
    const __m128i stored = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(stored), 16));
  }

  [[gnu::always_inline]] static const Kernels& scalar() noexcept { return kernels_for(TargetId::kReference); }
};

void encode(const float* in, const float* residual, float* left, std::uint64_t count, std::byte* payload) {
  encode_halves<Bf16>(in, residual, left, count, payload);
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  overwrite_with_halves<Bf16>(payload, count, scale, slot);
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  accumulate_halves<Bf16>(payload, count, scale, slot);
}

}  // namespace

extern constexpr Kernels kKernels = {nullptr, encode, nullptr, decode_overwrite, decode_accumulate};

}  // namespace deltawire::bf16::DELTAWIRE_TARGET
