// How vector kernels collect pairs, 64 values at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/kernels/set_bits.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

inline constexpr std::uint32_t kGroup = 64;
inline constexpr std::uint32_t kFew = 8;  // of a group: fewer are taken one by one

// Where pairs are written: behind those that are there. Whole vectors may be.
struct PairOutput {
  std::uint32_t* keys = nullptr;
  float* values = nullptr;
};

template <bool kResidual, bool kKeys>
[[gnu::always_inline]] inline std::uint32_t take_few(const PairInput& input, std::uint64_t at,
                                                     std::uint64_t chosen, const PairOutput& out) noexcept {
  const std::uint32_t pairs = set_bits(chosen, 0, out.keys);
  for (std::uint32_t i = 0; i < pairs; ++i) {
    const std::uint64_t place = at + out.keys[i];
    out.values[i] = kResidual ? input.left[place] : input.in[place];
    out.keys[i] = kKeys ? input.keys[place] : static_cast<std::uint32_t>(place);
  }
  return pairs;
}

// Vectors, a target's group of values, made of the cut: look_at<kResidual>(input, at), which of 64 are sent,
// and x is left where there is a residual; take<kResidual, kKeys>(input, at, chosen, out), these pairs;
// rest<kResidual, kKeys>(input, at, count, out), the pairs of up to kRest values. The last two return how
// many they wrote.
template <bool kResidual, bool kKeys, class Vectors>
[[gnu::always_inline]] inline Collected collect_chunk(const PairInput& input, std::uint64_t& at,
                                                      std::uint32_t cut, const Staging& staging) noexcept {
  Vectors vectors(cut);
  std::uint32_t pairs = 0;
  while (input.count - at >= kGroup && pairs + kGroup <= kChunkPairs) {
    const PairOutput out{staging.keys + pairs, staging.values + pairs};
    const std::uint64_t chosen = vectors.template look_at<kResidual>(input, at);
    if (chosen != 0) {
      pairs += popcount(chosen) <= kFew ? take_few<kResidual, kKeys>(input, at, chosen, out)
                                        : vectors.template take<kResidual, kKeys>(input, at, chosen, out);
    }
    at += kGroup;
  }
  while (at < input.count && pairs < kChunkPairs) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t room = kChunkPairs - pairs;
    std::uint32_t count = left < Vectors::kRest ? static_cast<std::uint32_t>(left) : Vectors::kRest;
    count = room < count ? room : count;
    const PairOutput out{staging.keys + pairs, staging.values + pairs};
    pairs += vectors.template rest<kResidual, kKeys>(input, at, count, out);
    at += count;
  }
  return {staging.keys, staging.values, pairs, at};
}

// Kernels::collect. Vectors also: are_all_sent(values, count, cut), whether none of a row is dropped.
template <class Vectors>
[[gnu::always_inline]] inline Collected collect_by(const PairInput& input, std::uint64_t& at,
                                                   std::uint32_t cut, const Staging& staging) noexcept {
  if (input.keys != nullptr) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t row = left < kChunkPairs ? static_cast<std::uint32_t>(left) : kChunkPairs;
    if (!Vectors::are_all_sent(input.in + at, row, cut)) {
      return collect_chunk<false, true, Vectors>(input, at, cut, staging);
    }
    const Collected all{input.keys + at, input.in + at, row, at + row};
    at += row;
    return all;
  }
  return input.residual != nullptr ? collect_chunk<true, false, Vectors>(input, at, cut, staging)
                                   : collect_chunk<false, false, Vectors>(input, at, cut, staging);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
