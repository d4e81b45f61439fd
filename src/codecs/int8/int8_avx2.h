// How AVX2 decodes, and AVX-512 too: wider vectors are no faster there.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "base/prefetch.h"
#include "codecs/int8/int8_ops.h"
#include "codecs/kernels/vectors_avx2.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

namespace {

constexpr std::uint64_t kStep = 32;  // values at a time: a vector of codes
constexpr unsigned kVectors = 4;

// For the first and last few values, which fill no vector.
const Kernels& rest_kernels() noexcept {
  return kernels_for(TargetId::kReference);
}

__m256i load_codes(const std::byte* payload) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(payload));
}

[[gnu::always_inline]] inline __m256 eight_values(const std::byte* payload, __m256 step,
                                                  __m256 scale) noexcept {
  const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(payload));
  const __m256 whole = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
  return _mm256_mul_ps(scale, _mm256_mul_ps(whole, step));
}

// From element `i` on; leaves in `i` how far whole steps went. Returns whether no code there is -128.
template <bool kAccumulates, bool kStreams>
[[gnu::always_inline]] inline bool decode_whole(const std::byte* payload, std::uint64_t count, __m256 step,
                                                __m256 scale, float* slot, std::uint64_t& i) noexcept {
  const __m256i unused = _mm256_set1_epi8(static_cast<char>(kUnusedCode));
  __m256i bad = _mm256_setzero_si256();
  for (; i + kStep <= count; i += kStep) {
    bad = _mm256_or_si256(bad, _mm256_cmpeq_epi8(load_codes(payload + i), unused));
    for (unsigned k = 0; k < kVectors; ++k) {
      float* const at = slot + i + 8 * k;
      __m256 values = eight_values(payload + i + 8 * k, step, scale);
      if (kAccumulates) values = _mm256_add_ps(_mm256_loadu_ps(at), values);
      store_eight<kStreams>(at, values);
    }
  }
  if (kStreams) _mm_sfence();
  return _mm256_testz_si256(bad, bad) != 0;
}

std::uint64_t find_bad_code(const std::byte* payload, std::uint64_t count, bool zeros_only) {
  const __m256i unused = _mm256_set1_epi8(static_cast<char>(kUnusedCode));
  std::uint64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const __m256i codes = load_codes(payload + i);
    if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(codes, unused)) != 0) break;
    if (zeros_only && _mm256_testz_si256(codes, codes) == 0) break;
  }
  return i + rest_kernels().find_bad_code(payload + i, count - i, zeros_only);
}

bool decode_overwrite(const std::byte* payload, std::uint64_t count, float step, float scale, float* slot) {
  const __m256 steps = _mm256_set1_ps(step);
  const __m256 scales = _mm256_set1_ps(scale);
  std::uint64_t i = 0;
  bool good = true;
  if (count * sizeof(float) >= kStreamedBytes) {
    i = floats_before_boundary(slot, 32);
    const bool first = rest_kernels().decode_overwrite(payload, i, step, scale, slot);
    good = decode_whole<false, true>(payload, count, steps, scales, slot, i) && first;
  } else {
    good = decode_whole<false, false>(payload, count, steps, scales, slot, i);
  }
  return rest_kernels().decode_overwrite(payload + i, count - i, step, scale, slot + i) && good;
}

bool decode_accumulate(const std::byte* payload, std::uint64_t count, float step, float scale, float* slot) {
  std::uint64_t i = 0;
  const bool good =
      decode_whole<true, false>(payload, count, _mm256_set1_ps(step), _mm256_set1_ps(scale), slot, i);
  return rest_kernels().decode_accumulate(payload + i, count - i, step, scale, slot + i) && good;
}

}  // namespace

}  // namespace deltawire::int8::DELTAWIRE_TARGET
