// Kernels of bf16 and fp16, which differ in how they convert eight values.
//
// A `Format` has `Codes`, eight codes as they leave the conversion, and these functions:
//
//   Codes round(__m256 x)                             the codes of eight values
//   __m256 error(__m256 x, Codes)                     what the rounding took from them
//   void store(Codes low, Codes high, std::byte* to)  stores 16 codes
//   __m256 load(const std::byte* from)                the values of eight codes
//   const ElementKernels<>& scalar()                  for the last few values, which fill no vector
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "codecs/kernels/elementwise.h"
#include "codecs/kernels/streaming.h"

namespace deltawire {

inline constexpr std::uint64_t kHalfBytes = 2;
inline constexpr std::uint64_t kHalfLanes = 8;

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
[[gnu::always_inline]] inline void encode_halves(const float* in, const float* residual, float* left,
                                                 std::uint64_t count, std::byte* payload) {
  constexpr std::uint64_t kLanes = kHalfLanes;
  std::uint64_t i = 0;
  if (left == nullptr) {
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      const auto low = Format::round(_mm256_loadu_ps(in + i));
      const auto high = Format::round(_mm256_loadu_ps(in + i + kLanes));
      Format::store(low, high, payload + i * kHalfBytes);
    }
  } else {
    for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
      const auto low = round_with_feedback<Format>(in, residual, left, i);
      const auto high = round_with_feedback<Format>(in, residual, left, i + kLanes);
      Format::store(low, high, payload + i * kHalfBytes);
    }
  }
  Format::scalar().encode(in + i, residual != nullptr ? residual + i : nullptr,
                          left != nullptr ? left + i : nullptr, count - i, payload + i * kHalfBytes);
}

// Past the caches: what such stores fill begins on a boundary of 32 bytes.
template <class Format>
[[gnu::always_inline]] inline void decode_streamed(const std::byte* payload, std::uint64_t count,
                                                   float* slot) noexcept {
  std::uint64_t i = floats_before_boundary(slot, 32);
  Format::scalar().decode_overwrite(payload, i, 1, slot);
  for (; i + kHalfLanes <= count; i += kHalfLanes) {
    _mm256_stream_ps(slot + i, Format::load(payload + i * kHalfBytes));
  }
  _mm_sfence();
  Format::scalar().decode_overwrite(payload + i * kHalfBytes, count - i, 1, slot + i);
}

template <class Format>
[[gnu::always_inline]] inline void overwrite_with_halves(const std::byte* payload, std::uint64_t count,
                                                         float scale, float* slot) {
  if (scale == 1.0F && count * sizeof(float) >= kStreamedBytes) {
    decode_streamed<Format>(payload, count, slot);
    return;
  }
  const std::uint64_t end = count / kHalfLanes * kHalfLanes;
  if (scale == 1.0F) {
    for (std::uint64_t i = 0; i < end; i += kHalfLanes) {
      _mm256_storeu_ps(slot + i, Format::load(payload + i * kHalfBytes));
    }
  } else {
    const __m256 factor = _mm256_set1_ps(scale);
    for (std::uint64_t i = 0; i < end; i += kHalfLanes) {
      _mm256_storeu_ps(slot + i, _mm256_mul_ps(factor, Format::load(payload + i * kHalfBytes)));
    }
  }
  Format::scalar().decode_overwrite(payload + end * kHalfBytes, count - end, scale, slot + end);
}

template <class Format>
[[gnu::always_inline]] inline void accumulate_halves(const std::byte* payload, std::uint64_t count,
                                                     float scale, float* slot) {
  const __m256 factor = _mm256_set1_ps(scale);
  const std::uint64_t end = count / kHalfLanes * kHalfLanes;
  for (std::uint64_t i = 0; i < end; i += kHalfLanes) {
    const __m256 value = _mm256_mul_ps(factor, Format::load(payload + i * kHalfBytes));
    _mm256_storeu_ps(slot + i, _mm256_add_ps(_mm256_loadu_ps(slot + i), value));
  }
  Format::scalar().decode_accumulate(payload + end * kHalfBytes, count - end, scale, slot + end);
}

}  // namespace deltawire
