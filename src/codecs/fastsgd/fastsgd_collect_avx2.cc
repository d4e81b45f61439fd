#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/kernels/compaction_avx2.h"
#include "codecs/kernels/set_bits.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 8;
constexpr std::uint32_t kGroup = 8 * kLanes;
constexpr std::uint32_t kFew = 8;  // of a group: fewer are taken one by one

__m256i all_of(std::uint32_t value) noexcept {
  return _mm256_set1_epi32(static_cast<int>(value));
}

// All bits of the lanes below `count`.
__m256i first_lanes(std::uint32_t count) noexcept {
  return _mm256_cmpgt_epi32(all_of(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

void store(std::uint32_t* at, __m256i values) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), values);
}

// Whether none of a row is dropped.
bool are_all_sent(const float* values, std::uint32_t count, std::uint32_t cut) noexcept {
  const __m256i least = all_of(cut);
  for (std::uint32_t i = 0; i < count; i += kGroup) {
    __m256i dropped = _mm256_setzero_si256();
    for (std::uint32_t j = i; j < i + kGroup && j < count; j += kLanes) {
      const __m256i lanes = first_lanes(count - j < kLanes ? count - j : kLanes);
      const __m256i bits = _mm256_castps_si256(_mm256_maskload_ps(values + j, lanes));
      const __m256i magnitudes = _mm256_and_si256(bits, all_of(kMagnitudeMask));
      dropped = _mm256_or_si256(dropped, _mm256_and_si256(_mm256_cmpgt_epi32(least, magnitudes), lanes));
    }
    if (_mm256_testz_si256(dropped, dropped) == 0) return false;
  }
  return true;
}

template <bool kResidual, bool kKeys>
struct Collector {
  const PairInput& input;
  const Staging& staging;
  __m256i below_cut;  // magnitudes are compared as signed numbers, of which they are no negative ones
  std::uint32_t pairs = 0;

  // Which of eight x are sent.
  unsigned chosen(__m256i bits) const noexcept {
    const __m256i magnitudes = _mm256_and_si256(bits, all_of(kMagnitudeMask));
    const __m256i kept = _mm256_cmpgt_epi32(magnitudes, below_cut);
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(kept)));
  }

  // The bits of x, which is left where there is a residual.
  __m256i look_at(std::uint64_t at) const noexcept {
    __m256 x = _mm256_loadu_ps(input.in + at);
    if constexpr (kResidual) {
      x = _mm256_add_ps(x, _mm256_loadu_ps(input.residual + at));
      _mm256_storeu_ps(input.left + at, x);
    }
    return _mm256_castps_si256(x);
  }

  void take(__m256i keys, __m256i bits, unsigned mask) noexcept {
    if (mask != 0xFF) {
      const __m256i order = compaction_of(mask);
      keys = compacted(keys, order);
      bits = compacted(bits, order);
    }
    store(staging.keys + pairs, keys);
    _mm256_storeu_ps(staging.values + pairs, _mm256_castsi256_ps(bits));
    pairs += popcount(mask);
  }

  __m256i places(std::uint64_t at) const noexcept {
    return _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                            all_of(static_cast<std::uint32_t>(at)));
  }

  void take_few(std::uint64_t at, std::uint64_t mask) noexcept {
    const std::uint32_t end = pairs + set_bits(mask, 0, staging.keys + pairs);
    for (; pairs < end; ++pairs) {
      const std::uint64_t place = at + staging.keys[pairs];
      const float x = kResidual ? input.left[place] : input.in[place];
      staging.values[pairs] = x;
      staging.keys[pairs] = kKeys ? input.keys[place] : static_cast<std::uint32_t>(place);
    }
  }

  void group(std::uint64_t at) noexcept {
    __m256i bits[8];
    unsigned masks[8];
    std::uint64_t all = 0;
    for (unsigned i = 0; i < 8; ++i) {
      bits[i] = look_at(at + i * kLanes);
      masks[i] = chosen(bits[i]);
      all |= std::uint64_t{masks[i]} << i * kLanes;
    }
    if (all == 0) return;
    if (popcount(all) <= kFew) return take_few(at, all);
    for (unsigned i = 0; i < 8; ++i) {
      const std::uint64_t first = at + i * kLanes;
      const __m256i keys =
          kKeys ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(input.keys + first)) : places(first);
      take(keys, bits[i], masks[i]);
    }
  }

  void rest(std::uint64_t at, std::uint32_t count) noexcept {
    const __m256i lanes = first_lanes(count);
    __m256 x = _mm256_maskload_ps(input.in + at, lanes);
    if constexpr (kResidual) {
      x = _mm256_add_ps(x, _mm256_maskload_ps(input.residual + at, lanes));
      _mm256_maskstore_ps(input.left + at, lanes, x);
    }
    __m256i keys = places(at);
    if constexpr (kKeys) keys = _mm256_maskload_epi32(reinterpret_cast<const int*>(input.keys + at), lanes);
    const __m256i bits = _mm256_castps_si256(x);
    take(keys, bits, chosen(bits) & ((1U << count) - 1));
  }
};

template <bool kResidual, bool kKeys>
Collected collect_chunk(const PairInput& input, std::uint64_t& at, std::uint32_t cut,
                        const Staging& staging) noexcept {
  Collector<kResidual, kKeys> collector{input, staging, all_of(cut - 1)};
  while (input.count - at >= kGroup && collector.pairs + kGroup <= kChunkPairs) {
    collector.group(at);
    at += kGroup;
  }
  while (at < input.count && collector.pairs < kChunkPairs) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t room = kChunkPairs - collector.pairs;
    std::uint32_t count = left < kLanes ? static_cast<std::uint32_t>(left) : kLanes;
    count = room < count ? room : count;
    collector.rest(at, count);
    at += count;
  }
  return {staging.keys, staging.values, collector.pairs, at};
}

}  // namespace

Collected collect(const PairInput& input, std::uint64_t& at, std::uint32_t cut, const Staging& staging) {
  if (input.keys != nullptr) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t row = left < kChunkPairs ? static_cast<std::uint32_t>(left) : kChunkPairs;
    if (!are_all_sent(input.in + at, row, cut)) return collect_chunk<false, true>(input, at, cut, staging);
    const Collected all{input.keys + at, input.in + at, row, at + row};
    at += row;
    return all;
  }
  return input.residual != nullptr ? collect_chunk<true, false>(input, at, cut, staging)
                                   : collect_chunk<false, false>(input, at, cut, staging);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
