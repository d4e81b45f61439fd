#include <cstdint>

#include <immintrin.h>

#include "base/float_bits.h"
#include "codecs/bf16/bf16_ops.h"
#include "codecs/kernels/streaming.h"

namespace deltawire::bf16::DELTAWIRE_TARGET {

namespace {

constexpr std::uint64_t kLanes = 8;

// For the last few values, which fill no vector.
const Kernels& rest_kernels() noexcept {
  return kernels_for(TargetId::kReference);
}

// bf16_of of eight values, each still in a 32-bit lane.
__m256i rounded(__m256i bits) noexcept {
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i near =
      _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(kMagnitudeMask));
  const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(kInfinityBits));
  const __m256i quiet = _mm256_or_si256(
      _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x8000)), _mm256_set1_epi32(0x7FC0));
  return _mm256_blendv_epi8(near, quiet, nan);
}

// Rounds eight of in + residual; left = what the rounding took.
__m256i round_with_feedback(const float* in, const float* residual, float* left) noexcept {
  const __m256 x = _mm256_add_ps(_mm256_loadu_ps(in), _mm256_loadu_ps(residual));
  const __m256i kept = rounded(_mm256_castps_si256(x));
  const __m256i bits = _mm256_slli_epi32(kept, 16);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(kMagnitudeMask));
  const __m256i finite = _mm256_cmpgt_epi32(_mm256_set1_epi32(kInfinityBits), magnitude);
  const __m256 error = _mm256_sub_ps(x, _mm256_castsi256_ps(bits));
  _mm256_storeu_ps(left, _mm256_and_ps(error, _mm256_castsi256_ps(finite)));
  return kept;
}

// 16 values, which packus leaves in the order 0-3, 8-11, 4-7, 12-15.
void store_pair(__m256i low, __m256i high, std::byte* payload) noexcept {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(payload), packed);
}

void encode(const float* in, const float* residual, float* left, std::uint64_t count, std::byte* payload) {
  std::uint64_t i = 0;
  if (residual == nullptr) {
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
      const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i + kLanes));
      store_pair(rounded(low), rounded(high), payload + i * kValueBytes);
    }
  } else {
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      const __m256i low = round_with_feedback(in + i, residual + i, left + i);
      const __m256i high = round_with_feedback(in + i + kLanes, residual + i + kLanes, left + i + kLanes);
      store_pair(low, high, payload + i * kValueBytes);
    }
  }
  const bool feedback = residual != nullptr;
  rest_kernels().encode(in + i, feedback ? residual + i : nullptr, feedback ? left + i : nullptr, count - i,
                        payload + i * kValueBytes);
}

__m256i load_values(const std::byte* payload) noexcept {
  const __m128i stored = _mm_loadu_si128(reinterpret_cast<const __m128i*>(payload));
  return _mm256_slli_epi32(_mm256_cvtepu16_epi32(stored), 16);
}

// Past the caches: what such stores fill begins on a boundary of 32 bytes.
void decode_streamed(const std::byte* payload, std::uint64_t count, float* slot) noexcept {
  std::uint64_t i = floats_before_boundary(slot, 32);
  rest_kernels().decode_overwrite(payload, i, 1, slot);
  for (; i + kLanes <= count; i += kLanes) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(slot + i), load_values(payload + i * kValueBytes));
  }
  _mm_sfence();
  rest_kernels().decode_overwrite(payload + i * kValueBytes, count - i, 1, slot + i);
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  if (scale == 1.0F && count * sizeof(float) >= kStreamedBytes) {
    decode_streamed(payload, count, slot);
    return;
  }
  const std::uint64_t end = count / kLanes * kLanes;
  if (scale == 1.0F) {
    for (std::uint64_t i = 0; i < end; i += kLanes) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(slot + i), load_values(payload + i * kValueBytes));
    }
  } else {
    const __m256 factor = _mm256_set1_ps(scale);
    for (std::uint64_t i = 0; i < end; i += kLanes) {
      const __m256 value = _mm256_castsi256_ps(load_values(payload + i * kValueBytes));
      _mm256_storeu_ps(slot + i, _mm256_mul_ps(factor, value));
    }
  }
  rest_kernels().decode_overwrite(payload + end * kValueBytes, count - end, scale, slot + end);
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  const __m256 factor = _mm256_set1_ps(scale);
  const std::uint64_t end = count / kLanes * kLanes;
  for (std::uint64_t i = 0; i < end; i += kLanes) {
    const __m256 value = _mm256_castsi256_ps(load_values(payload + i * kValueBytes));
    _mm256_storeu_ps(slot + i, _mm256_add_ps(_mm256_loadu_ps(slot + i), _mm256_mul_ps(factor, value)));
  }
  rest_kernels().decode_accumulate(payload + end * kValueBytes, count - end, scale, slot + end);
}

}  // namespace

extern constexpr Kernels kKernels = {nullptr, encode, nullptr, decode_overwrite, decode_accumulate};

}  // namespace deltawire::bf16::DELTAWIRE_TARGET
