#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "base/prefetch.h"
#include "codecs/kernels/lanes.h"
#include "codecs/kernels/vectors_avx2.h"
#include "codecs/onebit/onebit_ops.h"

namespace deltawire::onebit::DELTAWIRE_TARGET {

namespace {

constexpr std::uint64_t kStep = 32;  // values at a time: 4 bytes of bits
constexpr unsigned kVectors = 4;
static_assert(kSumBlock % kStep == 0 && kStep % kSumLanes == 0);

// For the last few values, which fill no vector.
const Kernels& rest_kernels() noexcept {
  return kernels_for(TargetId::kReference);
}

// The sums of both sides: lane i of the reference is lane i % 4 of vector i / 4.
struct Sums {
  __m256d high[kSumLanes / 4];
  __m256d low[kSumLanes / 4];
};

// Adds four values to vector `k`. To the side where it isn't, a value adds 0.
[[gnu::always_inline]] inline void add_four(Sums& sums, unsigned k, __m128 x) noexcept {
  const __m256d values = _mm256_cvtps_pd(x);
  const __m256d zero = _mm256_setzero_pd();
  sums.high[k] = _mm256_add_pd(sums.high[k], _mm256_max_pd(values, zero));
  sums.low[k] = _mm256_sub_pd(sums.low[k], _mm256_min_pd(values, zero));
}

struct State {
  Sums sums{};
  __m256i largest[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  std::uint64_t negatives = 0;
};

// Adds eight values, for the lower or upper lanes (half = 0, 1). Returns their bits.
[[gnu::always_inline]] inline std::uint32_t add_eight(State& state, unsigned half, __m256 x) noexcept {
  add_four(state.sums, 2 * half, _mm256_castps256_ps128(x));
  add_four(state.sums, 2 * half + 1, _mm256_extractf128_ps(x, 1));
  state.largest[half] = larger_of(state.largest[half], x);
  return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ)));
}

double sum_of(const __m256d (&vectors)[kSumLanes / 4]) noexcept {
  double lanes[kSumLanes];
  for (unsigned k = 0; k < kSumLanes / 4; ++k) _mm256_storeu_pd(lanes + 4 * k, vectors[k]);
  return folded(lanes);
}

// Adds whole steps of a block to its state.
template <bool kAdds, bool kKeeps, bool kStreams>
[[gnu::always_inline]] inline void split_whole(Addends x, std::uint64_t end, std::byte* payload,
                                               State& state) noexcept {
  for (std::uint64_t i = 0; i < end; i += kStep) {
    std::uint32_t bits = 0;
    for (unsigned k = 0; k < kVectors; ++k) {
      const __m256 sum = eight_of<kAdds>(x, i + 8 * k);
      bits |= add_eight(state, k % 2, sum) << 8 * k;
      if (kStreams) {
        stream_halves(x.left + i + 8 * k, sum);
      } else if (kKeeps) {
        _mm256_storeu_ps(x.left + i + 8 * k, sum);
      }
    }
    store_le(payload + i / 8, bits);
    state.negatives += popcount(bits);
  }
}

// The last few values of a part, filled up with zeros, which add nothing.
template <bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline void split_rest(const Addends& x, std::byte* payload, State& state) noexcept {
  float in[kStep] = {};
  float residual[kStep] = {};
  float left[kStep];
  std::byte bits[kStep / 8];
  std::memcpy(in, x.in, x.count * sizeof(float));
  if (kAdds) std::memcpy(residual, x.residual, x.count * sizeof(float));
  split_whole<kAdds, kKeeps, false>({in, residual, left, kStep}, kStep, bits, state);
  if (kKeeps) std::memcpy(x.left, left, x.count * sizeof(float));
  std::memcpy(payload, bits, (x.count + 7) / 8);
}

template <bool kAdds, bool kKeeps, bool kStreams>
Sides split_all(const Addends& x, std::byte* payload) noexcept {
  Sides sides{};
  for (std::uint64_t at = 0; at < x.count; at += kSumBlock) {
    const std::uint64_t count = x.count - at < kSumBlock ? x.count - at : kSumBlock;
    const std::uint64_t whole = count / kStep * kStep;
    State state{};
    split_whole<kAdds, kKeeps, kStreams>(some_of(x, at, count), whole, payload + at / 8, state);
    if (whole < count) {
      split_rest<kAdds, kKeeps>(some_of(x, at + whole, count - whole), payload + (at + whole) / 8, state);
    }
    const std::uint32_t largest = largest_of_eight(_mm256_max_epu32(state.largest[0], state.largest[1]));
    sides.largest = largest > sides.largest ? largest : sides.largest;
    sides.negatives += state.negatives;
    sides.high += sum_of(state.sums.high);
    sides.low += sum_of(state.sums.low);
  }
  if (kStreams) _mm_sfence();
  return sides;
}

Sides split(const Addends& x, std::byte* payload) {
  if (x.residual == nullptr) {
    return x.left == nullptr ? split_all<false, false, false>(x, payload)
                             : split_all<false, true, false>(x, payload);
  }
  if (x.left == nullptr) return split_all<true, false, false>(x, payload);
  const bool streams = x.left != x.residual && x.count * sizeof(float) >= kStreamedBytes &&
                       floats_before_boundary(x.left, 16) == 0;
  return streams ? split_all<true, true, true>(x, payload) : split_all<true, true, false>(x, payload);
}

template <bool kAdds>
[[gnu::always_inline]] inline std::uint64_t take_whole(Addends x, Means means) noexcept {
  const __m256 high = _mm256_set1_ps(means.high);
  const __m256 low = _mm256_set1_ps(means.low);
  std::uint64_t i = 0;
  for (; i + kStep <= x.count; i += kStep) {
    for (unsigned k = 0; k < kVectors; ++k) {
      const __m256 sum = eight_of<kAdds>(x, i + 8 * k);
      const __m256 mean = _mm256_blendv_ps(high, low, _mm256_cmp_ps(sum, _mm256_setzero_ps(), _CMP_LT_OQ));
      _mm256_storeu_ps(x.left + i + 8 * k, _mm256_sub_ps(sum, mean));
    }
  }
  return i;
}

void take_means(const Addends& x, Means means) {
  const std::uint64_t i = x.residual == nullptr ? take_whole<false>(x, means) : take_whole<true>(x, means);
  rest_kernels().take_means(some_of(x, i, x.count - i), means);
}

std::uint64_t find_set(const std::byte* payload, std::uint64_t bytes) {
  std::uint64_t i = 0;
  for (; i + 32 <= bytes; i += 32) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(payload + i));
    if (_mm256_testz_si256(bits, bits) == 0) break;
  }
  return i + rest_kernels().find_set(payload + i, bytes - i);
}

// From element `i` on, a multiple of 32; leaves in `i` how far whole steps went.
template <bool kAccumulates, bool kStreams>
[[gnu::always_inline]] inline std::uint64_t decode_whole(const std::byte* payload, std::uint64_t count,
                                                         Means values, float* slot) noexcept {
  const __m256 high = _mm256_set1_ps(values.high);
  const __m256 low = _mm256_set1_ps(values.low);
  // Brings bit j of eight to the sign of lane j.
  const __m256i to_sign = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
  std::uint64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const auto bits = load_le<std::uint32_t>(payload + i / 8);
    for (unsigned k = 0; k < kVectors; ++k) {
      const __m256i each = _mm256_set1_epi32(static_cast<int>(bits >> 8 * k));
      const __m256 signs = _mm256_castsi256_ps(_mm256_sllv_epi32(each, to_sign));
      __m256 value = _mm256_blendv_ps(high, low, signs);
      float* const at = slot + i + 8 * k;
      if (kAccumulates) value = _mm256_add_ps(_mm256_loadu_ps(at), value);
      if (kStreams) {
        stream_halves(at, value);
      } else {
        _mm256_storeu_ps(at, value);
      }
    }
  }
  if (kStreams) _mm_sfence();
  return i;
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, Means values, float* slot) {
  const bool streams = count * sizeof(float) >= kStreamedBytes && floats_before_boundary(slot, 16) == 0;
  const std::uint64_t i = streams ? decode_whole<false, true>(payload, count, values, slot)
                                  : decode_whole<false, false>(payload, count, values, slot);
  rest_kernels().decode_overwrite(payload + i / 8, count - i, values, slot + i);
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, Means values, float* slot) {
  const std::uint64_t i = decode_whole<true, false>(payload, count, values, slot);
  rest_kernels().decode_accumulate(payload + i / 8, count - i, values, slot + i);
}

}  // namespace

extern constexpr Kernels kKernels = {
    split,         take_means,        find_set,          decode_overwrite, decode_accumulate,
    split_columns, take_column_means, find_without_mean, decode_columns};

}  // namespace deltawire::onebit::DELTAWIRE_TARGET
