#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/kernels/set_bits.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 16;
constexpr std::uint32_t kGroup = 4 * kLanes;

__mmask16 first_lanes(std::uint64_t lanes) noexcept {
  return static_cast<__mmask16>(lanes < kLanes ? (1U << lanes) - 1 : 0xFFFF);
}

__m512i lane_numbers() noexcept {
  return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// Stores the chosen lanes side by side, and anything behind them; returns how many they are.
std::uint32_t store_chosen(std::uint32_t* out, __mmask16 chosen, __m512i values) noexcept {
  _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(chosen, values));
  return popcount(chosen);
}

// Where x goes beside the candidates.
enum class Left { kNowhere, kStored, kStreamed };

template <bool kResidual, Left kLeft>
struct Scan {
  const SelectInput& input;
  Candidates* lists;
  __m512i below[2];  // of negative numbers with their sign, so that they are large without one

  __m512i x_bits(std::uint64_t at, __mmask16 lanes) const noexcept {
    __m512 x = _mm512_maskz_loadu_ps(lanes, input.in + at);
    if constexpr (kResidual) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(lanes, input.residual + at));
    return _mm512_castps_si512(x);
  }

  __mmask16 positive(__m512i x) const noexcept { return _mm512_cmpgt_epi32_mask(x, below[0]); }
  __mmask16 negative(__m512i x) const noexcept { return _mm512_cmpgt_epu32_mask(x, below[1]); }

  // The candidates of both signs among 64 elements. Leaves x in its place.
  void look_at(std::uint64_t at, std::uint64_t* found) const noexcept {
    for (unsigned i = 0; i < 4; ++i) {
      const __m512i x = x_bits(at + i * kLanes, 0xFFFF);
      // Where nothing is kept there is no place to point at either.
      if constexpr (kLeft == Left::kStored) {
        _mm512_storeu_ps(input.left + at + i * kLanes, _mm512_castsi512_ps(x));
      } else if constexpr (kLeft == Left::kStreamed) {
        _mm512_stream_ps(input.left + at + i * kLanes, _mm512_castsi512_ps(x));
      }
      found[0] |= std::uint64_t{positive(x)} << (i * kLanes);
      found[1] |= std::uint64_t{negative(x)} << (i * kLanes);
    }
  }

  // Appends those of up to 16 elements; the zeros behind them are none.
  void append(std::uint64_t at, __mmask16 lanes) const noexcept {
    const __m512i x = x_bits(at, lanes);
    const __mmask16 chosen[2] = {positive(x), negative(x)};
    const __m512i first = _mm512_set1_epi32(static_cast<int>(static_cast<std::uint32_t>(at)));
    const __m512i positions = _mm512_add_epi32(lane_numbers(), first);
    const __m512i magnitudes = _mm512_and_si512(x, _mm512_set1_epi32(kMagnitudeMask));
    for (unsigned sign = 0; sign < 2; ++sign) {
      Candidates& list = lists[sign];
      store_chosen(list.positions + list.count, chosen[sign], positions);
      list.count += store_chosen(list.magnitudes + list.count, chosen[sign], magnitudes);
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
      for (std::uint64_t i = block.at; i < at; i += kLanes) append(i, 0xFFFF);
    } else {
      append(block.at, groups, 0, found);
      append(block.at, groups, 1, found);
    }
    for (; at < end; at += kLanes) {
      const __mmask16 lanes = first_lanes(end - at);
      if constexpr (kLeft != Left::kNowhere) {
        _mm512_mask_storeu_ps(input.left + at, lanes, _mm512_castsi512_ps(x_bits(at, lanes)));
      }
      append(at, lanes);
    }
  }
};

template <bool kResidual, Left kLeft>
void find(const SelectInput& input, const Block& block, Candidates* lists) noexcept {
  const Scan<kResidual, kLeft> scan{input,
                                    lists,
                                    {_mm512_set1_epi32(static_cast<int>(block.below[0])),
                                     _mm512_set1_epi32(static_cast<int>(block.below[1] | kSignBit))}};
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
  const __m512i least = _mm512_set1_epi32(static_cast<int>(threshold.magnitude));
  std::uint64_t ties = threshold.ties;
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < list.count; i += kLanes) {
    const __mmask16 lanes = first_lanes(list.count - i);
    const __m512i magnitudes = _mm512_maskz_loadu_epi32(lanes, list.magnitudes + i);
    const __m512i positions = _mm512_maskz_loadu_epi32(lanes, list.positions + i);
    __mmask16 chosen = _mm512_mask_cmpgt_epi32_mask(lanes, magnitudes, least);
    std::uint32_t equal = _mm512_mask_cmpeq_epi32_mask(lanes, magnitudes, least);
    if (equal != 0 && ties > 0) {
      // The lowest of them, as many as there may still be.
      if (ties < kLanes) equal = _pdep_u32((1U << ties) - 1, equal);
      ties -= popcount(equal);
      chosen = static_cast<__mmask16>(chosen | equal);
    }
    store_chosen(list.positions + kept, chosen, positions);
    kept += store_chosen(list.magnitudes + kept, chosen, magnitudes);
  }
  list.count = kept;
}

std::uint64_t count_above(const std::uint32_t* magnitudes, std::uint64_t count, std::uint32_t least) {
  const __m512i bound = _mm512_set1_epi32(static_cast<int>(least));
  std::uint64_t above = 0;
  std::uint64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    std::uint64_t found = 0;
    for (unsigned j = 0; j < 4; ++j) {
      const __m512i numbers = _mm512_loadu_si512(magnitudes + i + j * kLanes);
      found |= std::uint64_t{_mm512_cmpgt_epu32_mask(numbers, bound)} << (j * kLanes);
    }
    above += popcount(found);
  }
  for (; i < count; i += kLanes) {
    const __mmask16 lanes = first_lanes(count - i);
    const __m512i numbers = _mm512_maskz_loadu_epi32(lanes, magnitudes + i);
    above += popcount(_mm512_mask_cmpgt_epu32_mask(lanes, numbers, bound));
  }
  return above;
}

std::uint64_t collect_range(const std::uint32_t* magnitudes, std::uint64_t count, const Range& range,
                            std::uint32_t* out) {
  const __m512i low = _mm512_set1_epi32(static_cast<int>(range.low));
  const __m512i width = _mm512_set1_epi32(static_cast<int>(range.high - range.low));
  std::uint64_t found = 0;
  for (std::uint64_t i = 0; i < count; i += kLanes) {
    const __mmask16 lanes = first_lanes(count - i);
    const __m512i numbers = _mm512_maskz_loadu_epi32(lanes, magnitudes + i);
    const __mmask16 inside = _mm512_mask_cmple_epu32_mask(lanes, _mm512_sub_epi32(numbers, low), width);
    found += store_chosen(out + found, inside, numbers);
  }
  return found;
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
