#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/kernels/vectors_avx2.h"
#include "codecs/sparse/sparse_scan_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 8;

__m256i lane_numbers() noexcept {
  return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}

__m256i all_of(std::uint32_t value) noexcept {
  return _mm256_set1_epi32(static_cast<int>(value));
}

// All bits of the first `lanes` lanes.
__m256i first_lanes(std::uint64_t lanes) noexcept {
  return _mm256_cmpgt_epi32(all_of(static_cast<std::uint32_t>(lanes < kLanes ? lanes : kLanes)),
                            lane_numbers());
}

unsigned mask_of(__m256i lanes) noexcept {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(lanes)));
}

__m256i load(const std::uint32_t* at) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

__m256i load_first(const std::uint32_t* at, __m256i lanes) noexcept {
  return _mm256_maskload_epi32(reinterpret_cast<const int*>(at), lanes);
}

void store(std::uint32_t* at, __m256i values) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), values);
}

// Of 32 bits; `below` the bounds of both signs.
struct Lanes {
  using Bits = __m256i;
  static constexpr std::uint32_t kCount = kLanes;

  explicit Lanes(const Block& block) noexcept : below{all_of(block.below[0]), all_of(block.below[1])} {}

  template <bool kResidual>
  static Bits load(const SelectInput& input, std::uint64_t at) noexcept {
    __m256 x = _mm256_loadu_ps(input.in + at);
    if constexpr (kResidual) x = _mm256_add_ps(x, _mm256_loadu_ps(input.residual + at));
    return _mm256_castps_si256(x);
  }
  template <bool kResidual>
  static Bits load(const SelectInput& input, std::uint64_t at, std::uint64_t count) noexcept {
    const __m256i first = first_lanes(count);
    __m256 x = _mm256_maskload_ps(input.in + at, first);
    if constexpr (kResidual) x = _mm256_add_ps(x, _mm256_maskload_ps(input.residual + at, first));
    return _mm256_castps_si256(x);
  }
  static void store(float* to, Bits x) noexcept { _mm256_storeu_ps(to, _mm256_castsi256_ps(x)); }
  static void stream(float* to, Bits x) noexcept { _mm256_stream_ps(to, _mm256_castsi256_ps(x)); }
  static void store_first(float* to, Bits x, std::uint64_t count) noexcept {
    _mm256_maskstore_ps(to, first_lanes(count), _mm256_castsi256_ps(x));
  }

  // For each sign the other's numbers are negative, and so below every bound.
  unsigned positive(Bits x) const noexcept { return mask_of(_mm256_cmpgt_epi32(x, below[0])); }
  unsigned negative(Bits x) const noexcept {
    return mask_of(_mm256_cmpgt_epi32(_mm256_xor_si256(x, all_of(kSignBit)), below[1]));
  }

  // A zero is none.
  void append(Candidates* lists, std::uint64_t at, Bits x) const noexcept {
    const unsigned chosen[2] = {positive(x), negative(x)};
    const __m256i first = all_of(static_cast<std::uint32_t>(at));
    const __m256i magnitudes = _mm256_and_si256(x, all_of(kMagnitudeMask));
    for (unsigned sign = 0; sign < 2; ++sign) {
      Candidates& list = lists[sign];
      const __m256i order = compaction_of(chosen[sign]);
      sparse::DELTAWIRE_TARGET::store(list.positions + list.count, _mm256_add_epi32(order, first));
      sparse::DELTAWIRE_TARGET::store(list.magnitudes + list.count, compacted(magnitudes, order));
      list.count += popcount(chosen[sign]);
    }
  }

  __m256i below[2];
};

}  // namespace

void find_candidates(const SelectInput& input, const Block& block, Candidates* lists) {
  find_by<Lanes>(input, block, lists);
}

void end_stream() {
  _mm_sfence();
}

void drop_smaller(Candidates& list, const Threshold& threshold) {
  const __m256i least = all_of(threshold.magnitude);
  std::uint64_t ties = threshold.ties;
  std::uint64_t kept = 0;
  const auto keep = [&](__m256i magnitudes, __m256i positions, unsigned there) {
    unsigned chosen = mask_of(_mm256_cmpgt_epi32(magnitudes, least)) & there;
    if (ties > 0) {
      unsigned equal = mask_of(_mm256_cmpeq_epi32(magnitudes, least)) & there;
      for (; equal != 0 && ties > 0; equal &= equal - 1, --ties) chosen |= equal & (0 - equal);
    }
    const __m256i order = compaction_of(chosen);
    store(list.positions + kept, compacted(positions, order));
    store(list.magnitudes + kept, compacted(magnitudes, order));
    kept += popcount(chosen);
  };
  std::uint64_t i = 0;
  for (; i + kLanes <= list.count; i += kLanes)
    keep(load(list.magnitudes + i), load(list.positions + i), 0xFF);
  if (i < list.count) {
    const __m256i rest = first_lanes(list.count - i);
    keep(load_first(list.magnitudes + i, rest), load_first(list.positions + i, rest), mask_of(rest));
  }
  list.count = kept;
}

std::uint64_t count_above(const std::uint32_t* magnitudes, std::uint64_t count, std::uint32_t least) {
  const __m256i bound = all_of(least);
  __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};  // less one for each that is above
  std::uint64_t i = 0;
  // A lane's sum can't wrap: a part has fewer than 2^32 elements.
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    for (unsigned j = 0; j < 2; ++j) {
      const __m256i numbers = load(magnitudes + i + j * kLanes);
      sums[j] = _mm256_add_epi32(sums[j], _mm256_cmpgt_epi32(numbers, bound));
    }
  }
  std::uint32_t lanes_of[kLanes];
  store(lanes_of, _mm256_add_epi32(sums[0], sums[1]));
  std::uint64_t above = 0;
  for (const std::uint32_t lane : lanes_of) above += 0 - lane;
  for (; i < count; ++i) above += magnitudes[i] > least ? 1 : 0;
  return above;
}

std::uint64_t collect_range(const std::uint32_t* magnitudes, std::uint64_t count, const Range& range,
                            std::uint32_t* out) {
  // Signed numbers: magnitudes have 31 bits.
  const __m256i below = all_of(range.low - 1);
  const __m256i high = all_of(range.high);
  std::uint64_t found = 0;
  const auto collect = [&](__m256i numbers, unsigned there) {
    const __m256i inside =
        _mm256_andnot_si256(_mm256_cmpgt_epi32(numbers, high), _mm256_cmpgt_epi32(numbers, below));
    const unsigned chosen = mask_of(inside) & there;
    store(out + found, compacted(numbers, compaction_of(chosen)));
    found += popcount(chosen);
  };
  std::uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) collect(load(magnitudes + i), 0xFF);
  if (i < count) {
    const __m256i rest = first_lanes(count - i);
    collect(load_first(magnitudes + i, rest), mask_of(rest));
  }
  return found;
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
