#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/kernels/compaction_avx2.h"
#include "codecs/kernels/set_bits.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 8;
constexpr std::uint32_t kGroup = 8 * kLanes;

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

// Where x goes beside the candidates.
enum class Left { kNowhere, kStored, kStreamed };

template <bool kResidual, Left kLeft>
struct Scan {
  const SelectInput& input;
  Candidates* lists;
  __m256i below[2];

  __m256i x_bits(std::uint64_t at) const noexcept {
    __m256 x = _mm256_loadu_ps(input.in + at);
    if constexpr (kResidual) x = _mm256_add_ps(x, _mm256_loadu_ps(input.residual + at));
    return _mm256_castps_si256(x);
  }

  __m256i x_bits(std::uint64_t at, __m256i lanes) const noexcept {
    __m256 x = _mm256_maskload_ps(input.in + at, lanes);
    if constexpr (kResidual) x = _mm256_add_ps(x, _mm256_maskload_ps(input.residual + at, lanes));
    return _mm256_castps_si256(x);
  }

  // Of each sign the other's numbers are negative, and so below all.
  unsigned positive(__m256i x) const noexcept { return mask_of(_mm256_cmpgt_epi32(x, below[0])); }
  unsigned negative(__m256i x) const noexcept {
    return mask_of(_mm256_cmpgt_epi32(_mm256_xor_si256(x, all_of(kSignBit)), below[1]));
  }

  // The candidates of both signs among 64 elements. Leaves x in its place.
  void look_at(std::uint64_t at, std::uint64_t* found) const noexcept {
    for (unsigned i = 0; i < 8; ++i) {
      const __m256i x = x_bits(at + i * kLanes);
      // Where nothing is kept there is no place to point at either.
      if constexpr (kLeft == Left::kStored) {
        _mm256_storeu_ps(input.left + at + i * kLanes, _mm256_castsi256_ps(x));
      } else if constexpr (kLeft == Left::kStreamed) {
        _mm256_stream_ps(input.left + at + i * kLanes, _mm256_castsi256_ps(x));
      }
      found[0] |= std::uint64_t{positive(x)} << (i * kLanes);
      found[1] |= std::uint64_t{negative(x)} << (i * kLanes);
    }
  }

  // Appends those of eight elements; a zero is none.
  void append(std::uint64_t at, __m256i x) const noexcept {
    const unsigned chosen[2] = {positive(x), negative(x)};
    const __m256i first = all_of(static_cast<std::uint32_t>(at));
    const __m256i magnitudes = _mm256_and_si256(x, all_of(kMagnitudeMask));
    for (unsigned sign = 0; sign < 2; ++sign) {
      Candidates& list = lists[sign];
      const __m256i order = compaction_of(chosen[sign]);
      store(list.positions + list.count, _mm256_add_epi32(order, first));
      store(list.magnitudes + list.count, compacted(magnitudes, order));
      list.count += popcount(chosen[sign]);
    }
  }

  // Appends few candidates, of whole groups.
  void append(std::uint64_t at, unsigned groups, unsigned sign,
              const std::uint64_t (*found)[2]) const noexcept {
    Candidates& list = lists[sign];
    std::uint64_t end = list.count;
    for (unsigned i = 0; i < groups; ++i) {
      end += set_bits(found[i][sign], static_cast<std::uint32_t>(at + i * kGroup), list.positions + end);
    }
    for (std::uint64_t i = list.count; i < end; ++i) {
      const std::uint32_t position = list.positions[i];
      float x = input.in[position];
      if constexpr (kResidual) x += input.residual[position];
      list.magnitudes[i] = bit_cast<std::uint32_t>(x) & kMagnitudeMask;
    }
    list.count = end;
  }

  void run(const Block& block) const noexcept {
    std::uint64_t found[kSelectBlock / kGroup][2] = {};
    const unsigned groups = block.count / kGroup;
    std::uint32_t all = 0;
    for (unsigned i = 0; i < groups; ++i) {
      look_at(block.at + i * kGroup, found[i]);
      all += popcount(found[i][0]) + popcount(found[i][1]);
    }
    const std::uint64_t end = block.at + block.count;
    std::uint64_t at = block.at + groups * kGroup;
    if (all > block.count / 8) {
      for (std::uint64_t i = block.at; i < at; i += kLanes) append(i, x_bits(i));
    } else {
      append(block.at, groups, 0, found);
      append(block.at, groups, 1, found);
    }
    for (; at < end; at += kLanes) {
      const __m256i lanes = first_lanes(end - at);
      const __m256i x = x_bits(at, lanes);
      if constexpr (kLeft != Left::kNowhere) {
        _mm256_maskstore_ps(input.left + at, lanes, _mm256_castsi256_ps(x));
      }
      append(at, x);
    }
  }
};

template <bool kResidual, Left kLeft>
void find(const SelectInput& input, const Block& block, Candidates* lists) noexcept {
  const Scan<kResidual, kLeft> scan{input, lists, {all_of(block.below[0]), all_of(block.below[1])}};
  scan.run(block);
}

}  // namespace

void find_candidates(const SelectInput& input, const Block& block, Candidates* lists) {
  if (input.residual == nullptr) return find<false, Left::kNowhere>(input, block, lists);
  if (input.left == nullptr) return find<true, Left::kNowhere>(input, block, lists);
  if (!block.streamed) return find<true, Left::kStored>(input, block, lists);
  return find<true, Left::kStreamed>(input, block, lists);
}

void end_stream() {
  _mm_sfence();
}

void drop_smaller(Candidates& list, const Threshold& threshold) {
  const __m256i least = all_of(threshold.magnitude);
  std::uint64_t ties = threshold.ties;
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < list.count; i += kLanes) {
    const __m256i lanes = first_lanes(list.count - i);
    const __m256i magnitudes = load_first(list.magnitudes + i, lanes);
    const __m256i positions = load_first(list.positions + i, lanes);
    unsigned chosen = mask_of(_mm256_and_si256(_mm256_cmpgt_epi32(magnitudes, least), lanes));
    unsigned equal = mask_of(_mm256_and_si256(_mm256_cmpeq_epi32(magnitudes, least), lanes));
    for (; equal != 0 && ties > 0; equal &= equal - 1, --ties) chosen |= equal & (0 - equal);
    const __m256i order = compaction_of(chosen);
    store(list.positions + kept, compacted(positions, order));
    store(list.magnitudes + kept, compacted(magnitudes, order));
    kept += popcount(chosen);
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
  for (std::uint64_t i = 0; i < count; i += kLanes) {
    const __m256i lanes = first_lanes(count - i);
    const __m256i numbers = load_first(magnitudes + i, lanes);
    const __m256i inside =
        _mm256_andnot_si256(_mm256_cmpgt_epi32(numbers, high), _mm256_cmpgt_epi32(numbers, below));
    const unsigned chosen = mask_of(_mm256_and_si256(inside, lanes));
    store(out + found, compacted(numbers, compaction_of(chosen)));
    found += popcount(chosen);
  }
  return found;
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
