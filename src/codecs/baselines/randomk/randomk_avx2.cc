#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/kernels/addends_avx2.h"
#include "codecs/baselines/randomk/randomk_ops.h"

namespace deltawire::randomk::DELTAWIRE_TARGET {

namespace {

constexpr std::uint64_t kBatch = 64;

// Some places in a row. They are found before the first of them is used, so that what lies there is fetched
// meanwhile: far apart as they are, each would be waited for.
struct Batch {
  std::uint32_t at[kBatch];
  std::uint32_t stratum[kBatch];
  std::uint64_t first = 0;  // number of the first
  std::uint64_t count = 0;
};

// Walks the strata of a run without a division for each.
struct Walk {
  const Draw& draw;
  std::uint64_t length;  // of the shorter strata; the others have one more
  std::uint64_t longer;  // as many of `kept` are longer
  std::uint64_t next;
  std::uint64_t end;
  std::uint64_t begin;     // of stratum `next`: floor(next * count / kept)
  std::uint64_t fraction;  // what that floor took, times `kept`
};

[[gnu::always_inline]] inline Walk walk_of(const Draw& draw, const Run& run) noexcept {
  return {draw,
          draw.count / draw.kept,
          draw.count % draw.kept,
          run.first,
          run.first + run.count,
          run.first * draw.count / draw.kept,
          run.first * draw.count % draw.kept};
}

[[gnu::always_inline]] inline Walk walk_of(const Draw& draw) noexcept {
  return walk_of(draw, {0, draw.kept});
}

// The next places; none behind the last. Fetches what lies there in `fetched`, or nothing where that is null.
[[gnu::always_inline]] inline void next_batch(Walk& walk, const float* fetched, Batch& batch) noexcept {
  const std::uint64_t left = walk.end - walk.next;
  batch.first = walk.next;
  batch.count = left < kBatch ? left : kBatch;
  for (std::uint64_t i = 0; i < batch.count; ++i) {
    walk.fraction += walk.longer;
    const bool is_longer = walk.fraction >= walk.draw.kept;
    walk.fraction -= is_longer ? walk.draw.kept : 0;
    const std::uint64_t stratum = walk.length + (is_longer ? 1 : 0);
    const std::uint64_t at = walk.begin + ((walk.draw.random.at(walk.next + i) >> 32) * stratum >> 32);
    if (fetched != nullptr) _mm_prefetch(reinterpret_cast<const char*>(fetched + at), _MM_HINT_T0);
    batch.at[i] = static_cast<std::uint32_t>(at);
    batch.stratum[i] = static_cast<std::uint32_t>(stratum);
    walk.begin += stratum;
  }
  walk.next += batch.count;
}

bool sum_up(const Addends& x) {
  return add_up_avx2(x) < kInfinityBits;
}

bool write(const Addends& x, const Draw& draw, bool unbiased, std::byte* payload) {
  std::uint32_t largest = 0;
  Batch batch;
  for (Walk walk = walk_of(draw); walk.next < draw.kept;) {
    next_batch(walk, x.in, batch);
    for (std::uint64_t i = 0; i < batch.count && x.residual != nullptr; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(x.residual + batch.at[i]), _MM_HINT_T0);
    }
    for (std::uint64_t i = 0; i < batch.count; ++i) {
      const float sum = sum_at(x, batch.at[i]);
      const float value = unbiased ? sum * static_cast<float>(batch.stratum[i]) : sum;
      const std::uint32_t magnitude = magnitude_bits(value);
      largest = magnitude > largest ? magnitude : largest;
      store_le(payload + (batch.first + i) * kValueBytes, bit_cast<std::uint32_t>(value));
    }
  }
  return largest < kInfinityBits;
}

float value_at(const std::byte* payload, std::uint64_t i) noexcept {
  return bit_cast<float>(load_le<std::uint32_t>(payload + i * kValueBytes));
}

void take_sent(float* left, const Draw& draw, const std::byte* payload) {
  Batch batch;
  for (Walk walk = walk_of(draw); walk.next < draw.kept;) {
    next_batch(walk, left, batch);
    for (std::uint64_t i = 0; i < batch.count; ++i) left[batch.at[i]] -= value_at(payload, batch.first + i);
  }
}

std::uint64_t find_not_finite(const std::byte* payload, std::uint64_t kept) {
  const __m256i infinity = _mm256_set1_epi32(kInfinityBits);
  std::uint64_t i = 0;
  for (; i + 8 <= kept; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(payload + i * kValueBytes));
    const __m256i exponents = _mm256_and_si256(bits, infinity);
    if (_mm256_movemask_epi8(_mm256_cmpeq_epi32(exponents, infinity)) != 0) break;
  }
  return i + kernels_for(TargetId::kReference).find_not_finite(payload + i * kValueBytes, kept - i);
}

template <bool kAccumulates>
[[gnu::always_inline]] inline void place_values(const std::byte* values, const Draw& draw, const Run& run,
                                                const Target& target) noexcept {
  Batch batch;
  for (Walk walk = walk_of(draw, run); walk.next < walk.end;) {
    next_batch(walk, kAccumulates ? target.slot : nullptr, batch);  // a store waits for nothing
    for (std::uint64_t i = 0; i < batch.count; ++i) {
      const float value = value_at(values, batch.first - run.first + i);
      if (value == 0) continue;
      float& slot = target.slot[batch.at[i]];
      slot = kAccumulates ? slot + target.scale * value : target.scale * value;
    }
  }
}

void read(const std::byte* values, const Draw& draw, const Run& run, const Target& target) {
  if (target.accumulate) {
    place_values<true>(values, draw, run, target);
  } else {
    place_values<false>(values, draw, run, target);
  }
}

}  // namespace

extern constexpr Kernels kKernels = {sum_up, write, take_sent, find_not_finite, read};

}  // namespace deltawire::randomk::DELTAWIRE_TARGET
