#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/prefetch.h"
#include "codecs/halves/halves_ops.h"

namespace deltawire::halves::DELTAWIRE_TARGET {

namespace {

constexpr std::uint64_t kLanes = 8;

// What the two formats differ in: how eight values become codes, which leave the conversion as `Codes`; what
// that took from them; how 16 codes are stored, and eight loaded. The reference codes the last few, which
// fill no vector.
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

  [[gnu::always_inline]] static const ElementKernels<>& scalar() noexcept {
    return kernels_for(TargetId::kReference).bf16;
  }
};

// F16C converts eight values with one instruction.
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

  [[gnu::always_inline]] static const ElementKernels<>& scalar() noexcept {
    return kernels_for(TargetId::kReference).fp16;
  }
};

// Eight, from element `i` on. `residual` null: nothing to add.
template <class Format>
[[gnu::always_inline]] inline typename Format::Codes round_with_feedback(const float* in,
                                                                         const float* residual, float* left,
                                                                         std::uint64_t i) noexcept {
  __m256 x = _mm256_loadu_ps(in + i);
  if (residual != nullptr) x = _mm256_add_ps(x, _mm256_loadu_ps(residual + i));
  const auto codes = Format::round(x);
  _mm256_storeu_ps(left + i, Format::error(x, codes));
  return codes;
}

template <class Format>
void encode(const float* in, const float* residual, float* left, std::uint64_t count, std::byte* payload) {
  std::uint64_t i = 0;
  if (left == nullptr) {
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      prefetch_page(in + i, sizeof(float) * 2 * kLanes);
      const auto low = Format::round(_mm256_loadu_ps(in + i));
      const auto high = Format::round(_mm256_loadu_ps(in + i + kLanes));
      Format::store(low, high, payload + i * kValueBytes);
    }
  } else {
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      prefetch_page(in + i, sizeof(float) * 2 * kLanes);
      if (residual != nullptr) prefetch_page(residual + i, sizeof(float) * 2 * kLanes);
      const auto low = round_with_feedback<Format>(in, residual, left, i);
      const auto high = round_with_feedback<Format>(in, residual, left, i + kLanes);
      Format::store(low, high, payload + i * kValueBytes);
    }
  }
  Format::scalar().encode(in + i, residual != nullptr ? residual + i : nullptr,
                          left != nullptr ? left + i : nullptr, count - i, payload + i * kValueBytes);
}

// Past the caches: what such stores fill begins on a boundary of 32 bytes.
template <class Format>
[[gnu::always_inline]] inline void decode_streamed(const std::byte* payload, std::uint64_t count,
                                                   float* slot) noexcept {
  std::uint64_t i = floats_before_boundary(slot, 32);
  Format::scalar().decode_overwrite(payload, i, 1, slot);
  for (; i + kLanes <= count; i += kLanes) {
    _mm256_stream_ps(slot + i, Format::load(payload + i * kValueBytes));
  }
  _mm_sfence();
  Format::scalar().decode_overwrite(payload + i * kValueBytes, count - i, 1, slot + i);
}

template <class Format>
void decode_overwrite(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  if (scale == 1.0F && count * sizeof(float) >= kStreamedBytes) {
    decode_streamed<Format>(payload, count, slot);
    return;
  }
  const std::uint64_t end = count / kLanes * kLanes;
  if (scale == 1.0F) {
    for (std::uint64_t i = 0; i < end; i += kLanes) {
      _mm256_storeu_ps(slot + i, Format::load(payload + i * kValueBytes));
    }
  } else {
    const __m256 factor = _mm256_set1_ps(scale);
    for (std::uint64_t i = 0; i < end; i += kLanes) {
      _mm256_storeu_ps(slot + i, _mm256_mul_ps(factor, Format::load(payload + i * kValueBytes)));
    }
  }
  Format::scalar().decode_overwrite(payload + end * kValueBytes, count - end, scale, slot + end);
}

template <class Format>
void decode_accumulate(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  const __m256 factor = _mm256_set1_ps(scale);
  const std::uint64_t end = count / kLanes * kLanes;
  for (std::uint64_t i = 0; i < end; i += kLanes) {
    prefetch_page(slot + i, sizeof(float) * kLanes);
    const __m256 value = _mm256_mul_ps(factor, Format::load(payload + i * kValueBytes));
    _mm256_storeu_ps(slot + i, _mm256_add_ps(_mm256_loadu_ps(slot + i), value));
  }
  Format::scalar().decode_accumulate(payload + end * kValueBytes, count - end, scale, slot + end);
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

}  // namespace

extern constexpr Kernels kKernels = {
    .bf16 = {encode<Bf16>, nullptr, decode_overwrite<Bf16>, decode_accumulate<Bf16>},
    .fp16 = {encode<Fp16>, find_refused, decode_overwrite<Fp16>, decode_accumulate<Fp16>}};

}  // namespace deltawire::halves::DELTAWIRE_TARGET
