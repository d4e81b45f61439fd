#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/sparse/sparse_scan_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 16;

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

// Of 32 bits; `below` the bounds of both signs, of negative numbers with their sign, so that they are large
// without one.
struct Lanes {
  using Bits = __m512i;
  static constexpr std::uint32_t kCount = kLanes;

  explicit Lanes(const Block& block) noexcept
      : below{_mm512_set1_epi32(static_cast<int>(block.below[0])),
              _mm512_set1_epi32(static_cast<int>(block.below[1] | kSignBit))} {}

  template <bool kResidual>
  static Bits load(const SelectInput& input, std::uint64_t at, std::uint64_t count = kLanes) noexcept {
    const __mmask16 first = first_lanes(count);
    __m512 x = _mm512_maskz_loadu_ps(first, input.in + at);
    if constexpr (kResidual) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(first, input.residual + at));
    return _mm512_castps_si512(x);
  }
  static void store(float* to, Bits x) noexcept { _mm512_storeu_ps(to, _mm512_castsi512_ps(x)); }
  static void stream(float* to, Bits x) noexcept { _mm512_stream_ps(to, _mm512_castsi512_ps(x)); }
  static void store_first(float* to, Bits x, std::uint64_t count) noexcept {
    _mm512_mask_storeu_ps(to, first_lanes(count), _mm512_castsi512_ps(x));
  }

  __mmask16 positive(Bits x) const noexcept { return _mm512_cmpgt_epi32_mask(x, below[0]); }
  __mmask16 negative(Bits x) const noexcept { return _mm512_cmpgt_epu32_mask(x, below[1]); }

  // A zero is none.
  void append(Candidates* lists, std::uint64_t at, Bits x) const noexcept {
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

  __m512i below[2];
};

}  // namespace

void find_candidates(const SelectInput& input, const Block& block, Candidates* lists) {
  find_by<Lanes>(input, block, lists);
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
      // The first `ties` of them.
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
