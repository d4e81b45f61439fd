#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/kernels/set_bits.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 16;
constexpr std::uint32_t kGroup = 4 * kLanes;
constexpr std::uint32_t kFew = 8;  // of a group: fewer are taken one by one

__m512i lane_numbers() noexcept {
  return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// Whether none of a row is dropped.
bool are_all_sent(const float* values, std::uint32_t count, std::uint32_t cut) noexcept {
  const __m512i least = _mm512_set1_epi32(static_cast<int>(cut));
  for (std::uint32_t i = 0; i < count; i += kGroup) {
    std::uint32_t dropped = 0;
    for (std::uint32_t j = i; j < i + kGroup && j < count; j += kLanes) {
      const std::uint32_t left = count - j;
      const auto lanes = static_cast<__mmask16>(left < kLanes ? (1U << left) - 1 : 0xFFFF);
      const __m512i bits = _mm512_castps_si512(_mm512_maskz_loadu_ps(lanes, values + j));
      const __m512i magnitudes = _mm512_and_si512(bits, _mm512_set1_epi32(kMagnitudeMask));
      dropped |= _mm512_mask_cmplt_epu32_mask(lanes, magnitudes, least);
    }
    if (dropped != 0) return false;
  }
  return true;
}

template <bool kResidual, bool kKeys>
struct Collector {
  const PairInput input;  // copies, which no store can alias
  const Staging staging;
  __m512i cut;
  std::uint32_t pairs = 0;

  // The bits of x, which is left where there is a residual, and which of them are sent.
  __m512i look_at(std::uint64_t at, __mmask16 lanes, __mmask16& chosen) const noexcept {
    __m512 x = _mm512_maskz_loadu_ps(lanes, input.in + at);
    if constexpr (kResidual) {
      x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(lanes, input.residual + at));
      _mm512_mask_storeu_ps(input.left + at, lanes, x);
    }
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i magnitudes = _mm512_and_si512(bits, _mm512_set1_epi32(kMagnitudeMask));
    chosen = _mm512_mask_cmpge_epu32_mask(lanes, magnitudes, cut);
    return bits;
  }

  void take(std::uint64_t at, __m512i bits, __mmask16 lanes, __mmask16 chosen) noexcept {
    __m512i keys = _mm512_add_epi32(lane_numbers(), _mm512_set1_epi32(static_cast<int>(at)));
    if constexpr (kKeys) keys = _mm512_maskz_loadu_epi32(lanes, input.keys + at);
    _mm512_storeu_si512(staging.keys + pairs, _mm512_maskz_compress_epi32(chosen, keys));
    _mm512_storeu_si512(staging.values + pairs, _mm512_maskz_compress_epi32(chosen, bits));
    pairs += popcount(chosen);
  }

  void take_few(std::uint64_t at, std::uint64_t chosen) noexcept {
    const std::uint32_t end = pairs + set_bits(chosen, 0, staging.keys + pairs);
    for (; pairs < end; ++pairs) {
      const std::uint64_t place = at + staging.keys[pairs];
      const float x = kResidual ? input.left[place] : input.in[place];
      staging.values[pairs] = x;
      staging.keys[pairs] = kKeys ? input.keys[place] : static_cast<std::uint32_t>(place);
    }
  }

  void group(std::uint64_t at) noexcept {
    __m512i bits[4];
    __mmask16 chosen[4];
    std::uint64_t all = 0;
    for (unsigned i = 0; i < 4; ++i) {
      bits[i] = look_at(at + i * kLanes, 0xFFFF, chosen[i]);
      all |= std::uint64_t{chosen[i]} << i * kLanes;
    }
    if (all == 0) return;
    if (popcount(all) <= kFew) return take_few(at, all);
    for (unsigned i = 0; i < 4; ++i) take(at + i * kLanes, bits[i], 0xFFFF, chosen[i]);
  }

  void rest(std::uint64_t at, std::uint32_t count) noexcept {
    const auto lanes = static_cast<__mmask16>((1U << count) - 1);
    __mmask16 chosen = 0;
    const __m512i bits = look_at(at, lanes, chosen);
    take(at, bits, lanes, chosen);
  }
};

template <bool kResidual, bool kKeys>
Collected collect_chunk(const PairInput& input, std::uint64_t& at, std::uint32_t cut,
                        const Staging& staging) noexcept {
  Collector<kResidual, kKeys> collector{input, staging, _mm512_set1_epi32(static_cast<int>(cut))};
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
