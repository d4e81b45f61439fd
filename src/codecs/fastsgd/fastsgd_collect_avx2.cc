#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_collect_ops.h"
#include "codecs/kernels/compaction_avx2.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 8;

__m256i all_of(std::uint32_t value) noexcept {
  return _mm256_set1_epi32(static_cast<int>(value));
}

// All bits of the lanes below `count`.
__m256i first_lanes(std::uint32_t count) noexcept {
  return _mm256_cmpgt_epi32(all_of(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

__m256i places(std::uint64_t at) noexcept {
  return _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), all_of(static_cast<std::uint32_t>(at)));
}

// Returns how many of eight pairs are chosen, which are written.
std::uint32_t put(__m256i keys, __m256i bits, unsigned mask, const PairOutput& out,
                  std::uint32_t behind) noexcept {
  if (mask != 0xFF) {
    const __m256i order = compaction_of(mask);
    keys = compacted(keys, order);
    bits = compacted(bits, order);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.keys + behind), keys);
  _mm256_storeu_ps(out.values + behind, _mm256_castsi256_ps(bits));
  return popcount(mask);
}

struct Vectors {
  static constexpr std::uint32_t kRest = kLanes;

  __m256i below_cut;  // magnitudes are compared as signed numbers, of which they are no negative ones
  __m256i bits[kGroup / kLanes];

  explicit Vectors(std::uint32_t cut) noexcept : below_cut(all_of(cut - 1)) {}

  static bool are_all_sent(const float* values, std::uint32_t count, std::uint32_t cut) noexcept {
    const __m256i least = all_of(cut);
    for (std::uint32_t i = 0; i < count; i += kGroup) {
      __m256i dropped = _mm256_setzero_si256();
      for (std::uint32_t j = i; j < i + kGroup && j < count; j += kLanes) {
        const __m256i lanes = first_lanes(count - j < kLanes ? count - j : kLanes);
        const __m256i row = _mm256_castps_si256(_mm256_maskload_ps(values + j, lanes));
        const __m256i magnitudes = _mm256_and_si256(row, all_of(kMagnitudeMask));
        dropped = _mm256_or_si256(dropped, _mm256_and_si256(_mm256_cmpgt_epi32(least, magnitudes), lanes));
      }
      if (_mm256_testz_si256(dropped, dropped) == 0) return false;
    }
    return true;
  }

  // Which of eight x are sent.
  unsigned chosen_of(__m256i x) const noexcept {
    const __m256i magnitudes = _mm256_and_si256(x, all_of(kMagnitudeMask));
    const __m256i kept = _mm256_cmpgt_epi32(magnitudes, below_cut);
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(kept)));
  }

  template <bool kResidual>
  [[gnu::always_inline]] std::uint64_t look_at(const PairInput& input, std::uint64_t at) noexcept {
    std::uint64_t chosen = 0;
    for (unsigned i = 0; i < kGroup / kLanes; ++i) {
      const std::uint64_t first = at + i * kLanes;
      __m256 x = _mm256_loadu_ps(input.in + first);
      if constexpr (kResidual) {
        x = _mm256_add_ps(x, _mm256_loadu_ps(input.residual + first));
        _mm256_storeu_ps(input.left + first, x);
      }
      bits[i] = _mm256_castps_si256(x);
      chosen |= std::uint64_t{chosen_of(bits[i])} << i * kLanes;
    }
    return chosen;
  }

  template <bool kResidual, bool kKeys>
  [[gnu::always_inline]] std::uint32_t take(const PairInput& input, std::uint64_t at, std::uint64_t chosen,
                                            const PairOutput& out) const noexcept {
    std::uint32_t pairs = 0;
    for (unsigned i = 0; i < kGroup / kLanes; ++i) {
      const std::uint64_t first = at + i * kLanes;
      const __m256i keys =
          kKeys ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(input.keys + first)) : places(first);
      pairs += put(keys, bits[i], static_cast<unsigned>(chosen >> i * kLanes & 0xFF), out, pairs);
    }
    return pairs;
  }

  template <bool kResidual, bool kKeys>
  std::uint32_t rest(const PairInput& input, std::uint64_t at, std::uint32_t count,
                     const PairOutput& out) const noexcept {
    const __m256i lanes = first_lanes(count);
    __m256 x = _mm256_maskload_ps(input.in + at, lanes);
    if constexpr (kResidual) {
      x = _mm256_add_ps(x, _mm256_maskload_ps(input.residual + at, lanes));
      _mm256_maskstore_ps(input.left + at, lanes, x);
    }
    __m256i keys = places(at);
    if constexpr (kKeys) keys = _mm256_maskload_epi32(reinterpret_cast<const int*>(input.keys + at), lanes);
    const __m256i of_rest = _mm256_castps_si256(x);
    return put(keys, of_rest, chosen_of(of_rest) & ((1U << count) - 1), out, 0);
  }
};

}  // namespace

Collected collect(const PairInput& input, std::uint64_t& at, std::uint32_t cut, const Staging& staging) {
  return collect_by<Vectors>(input, at, cut, staging);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
