// Candidates are found and dropped. Where few of many pass, they are written one by one, and groups without a
// candidate, which are most of them, cost no more than their comparisons. Where many pass, the bytes of those
// of a vector are looked up by a table of the places that they come from.
#include <cstdint>

#include <arm_neon.h>

#include "base/bit_functions.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 4;
constexpr std::uint32_t kVectors = 4;
constexpr std::uint32_t kGroup = kVectors * kLanes;

// For each sign the other's numbers are negative, and so below every bound.
bool any_above(const int32x4_t (&x)[kVectors], const Block& block) noexcept {
  const int32x4_t positive = vdupq_n_s32(static_cast<std::int32_t>(block.below[0]));
  const int32x4_t negative = vdupq_n_s32(static_cast<std::int32_t>(block.below[1]));
  const int32x4_t sign = vreinterpretq_s32_u32(vdupq_n_u32(kSignBit));
  uint32x4_t any = vdupq_n_u32(0);
  for (const int32x4_t four : x) {
    any = vorrq_u32(any, vorrq_u32(vcgtq_s32(four, positive), vcgtq_s32(veorq_s32(four, sign), negative)));
  }
  return vmaxvq_u32(any) != 0;
}

// By mask of four lanes: where the bytes of the chosen come from, from the lowest lane on. 0 behind them.
struct Compaction {
  alignas(16) std::uint8_t places[16][16];
};

constexpr Compaction make_compaction() noexcept {
  Compaction table{};
  for (unsigned mask = 0; mask < 16; ++mask) {
    unsigned bytes = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      for (unsigned i = 0; i < 4; ++i) table.places[mask][bytes++] = static_cast<std::uint8_t>(4 * lane + i);
    }
  }
  return table;
}

constexpr Compaction kCompaction = make_compaction();

// REQUIRES: lanes of all bits or none.
std::uint32_t mask_of(uint32x4_t lanes) noexcept {
  const uint32x4_t bits = {1, 2, 4, 8};
  return vaddvq_u32(vandq_u32(lanes, bits));
}

// Stores the lanes of the mask side by side, and anything behind them.
void store_chosen(std::uint32_t* out, std::uint32_t mask, uint32x4_t values) noexcept {
  const uint8x16_t places = vld1q_u8(kCompaction.places[mask]);
  vst1q_u32(out, vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(values), places)));
}

template <bool kResidual, bool kLeft>
void find(const SelectInput& input, const Block& block, Candidates* lists) noexcept {
  const std::uint64_t end = block.at + block.count;
  std::uint64_t at = block.at;
  std::uint32_t bits[kGroup];
  for (; at + kGroup <= end; at += kGroup) {
    int32x4_t x[kVectors];
    for (std::uint32_t i = 0; i < kVectors; ++i) {
      float32x4_t sum = vld1q_f32(input.in + at + i * kLanes);
      if (kResidual) sum = vaddq_f32(sum, vld1q_f32(input.residual + at + i * kLanes));
      if (kLeft) vst1q_f32(input.left + at + i * kLanes, sum);
      x[i] = vreinterpretq_s32_f32(sum);
    }
    if (!any_above(x, block)) continue;
    for (std::uint32_t i = 0; i < kVectors; ++i) vst1q_u32(bits + i * kLanes, vreinterpretq_u32_s32(x[i]));
    append_above(bits, kGroup, at, block, lists);
  }
  const auto rest = static_cast<std::uint32_t>(end - at);
  for (std::uint32_t i = 0; i < rest; ++i) {
    const float x = kResidual ? input.in[at + i] + input.residual[at + i] : input.in[at + i];
    if (kLeft) input.left[at + i] = x;
    bits[i] = bit_cast<std::uint32_t>(x);
  }
  append_above(bits, rest, at, block, lists);
}

}  // namespace

void find_candidates(const SelectInput& input, const Block& block, Candidates* lists) {
  if (input.residual == nullptr) return find<false, false>(input, block, lists);
  if (input.left == nullptr) return find<true, false>(input, block, lists);
  return find<true, true>(input, block, lists);
}

void end_stream() {}

void drop_smaller(Candidates& list, const Threshold& threshold) {
  const uint32x4_t least = vdupq_n_u32(threshold.magnitude);
  std::uint64_t ties = threshold.ties;
  std::uint64_t kept = 0;
  std::uint64_t i = 0;
  for (; i + kLanes <= list.count; i += kLanes) {
    const uint32x4_t magnitudes = vld1q_u32(list.magnitudes + i);
    const uint32x4_t positions = vld1q_u32(list.positions + i);
    std::uint32_t chosen = mask_of(vcgtq_u32(magnitudes, least));
    if (ties > 0) {
      std::uint32_t equal = mask_of(vceqq_u32(magnitudes, least));
      for (; equal != 0 && ties > 0; equal &= equal - 1, --ties) chosen |= equal & (0 - equal);
    }
    store_chosen(list.positions + kept, chosen, positions);
    store_chosen(list.magnitudes + kept, chosen, magnitudes);
    kept += popcount(chosen);
  }
  for (; i < list.count; ++i) {
    const std::uint32_t magnitude = list.magnitudes[i];
    const bool tie = magnitude == threshold.magnitude && ties > 0;
    list.positions[kept] = list.positions[i];
    list.magnitudes[kept] = magnitude;
    kept += magnitude > threshold.magnitude || tie ? 1 : 0;
    ties -= tie ? 1 : 0;
  }
  list.count = kept;
}

std::uint64_t count_above(const std::uint32_t* magnitudes, std::uint64_t count, std::uint32_t least) {
  const uint32x4_t bound = vdupq_n_u32(least);
  uint32x4_t sum = vdupq_n_u32(0);  // a lane's can't wrap: a part has fewer than 2^32 elements
  std::uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sum = vsubq_u32(sum, vcgtq_u32(vld1q_u32(magnitudes + i), bound));
  std::uint64_t above = vaddlvq_u32(sum);
  for (; i < count; ++i) above += magnitudes[i] > least ? 1 : 0;
  return above;
}

std::uint64_t collect_range(const std::uint32_t* magnitudes, std::uint64_t count, const Range& range,
                            std::uint32_t* out) {
  const uint32x4_t low = vdupq_n_u32(range.low);
  const uint32x4_t high = vdupq_n_u32(range.high);
  std::uint64_t found = 0;
  std::uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const uint32x4_t numbers = vld1q_u32(magnitudes + i);
    const std::uint32_t chosen = mask_of(vandq_u32(vcgeq_u32(numbers, low), vcleq_u32(numbers, high)));
    store_chosen(out + found, chosen, numbers);
    found += popcount(chosen);
  }
  for (; i < count; ++i) {
    const std::uint32_t magnitude = magnitudes[i];
    out[found] = magnitude;  // behind what is found there is room, and `out` is never ahead of `i`
    found += magnitude >= range.low && magnitude <= range.high ? 1 : 0;
  }
  return found;
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
