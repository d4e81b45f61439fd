// How encoders for 64 lanes go over a block, and how a histogram is taken, whatever a target's vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codecs/gcomp/gcomp_classify_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

// The last stretch, which isn't full: from copies that are, so that nothing is read or written beyond its
// end.
template <Keep kKeep, bool kResidual, class Encoder>
[[gnu::always_inline]] inline std::byte* push_last(const Values& block, std::uint32_t begin, Encoder& encoder,
                                                   std::byte* at) noexcept {
  float in[kMaxStretch] = {};
  float residual[kMaxStretch] = {};
  float significance[kMaxStretch] = {};
  const std::uint32_t count = block.count - begin;
  for (std::uint32_t i = 0; i < count; ++i) {
    in[i] = block.in[begin + i];
    if constexpr (kResidual) residual[i] = block.residual[begin + i];
    if constexpr (kKeep == Keep::kSignificance) significance[i] = block.significance[begin + i];
  }
  const Values last{in, kResidual ? residual : nullptr, significance, kMaxStretch, block.rule};
  at = encoder.push(last, 0, count, at);
  if constexpr (!kResidual) return at;
  for (std::uint32_t i = 0; i < count; ++i) block.residual[begin + i] = residual[i];
  return at;
}

// Codes a block from its last stretch to its first; returns where its bytes end. Encoder, a target's lanes:
// push(values, begin, count, at) codes `count` values from `begin` on, and reads and writes all of a stretch.
template <Keep kKeep, bool kResidual, class Encoder>
[[gnu::always_inline]] inline std::byte* encode_by(const Values& block, Encoder& encoder,
                                                   std::byte* at) noexcept {
  std::uint32_t begin = block.count / kMaxStretch * kMaxStretch;
  if (begin < block.count) at = push_last<kKeep, kResidual>(block, begin, encoder, at);
  while (begin > 0) {
    begin -= kMaxStretch;
    at = encoder.push(block, begin, kMaxStretch, at);
  }
  return at;
}

// Counts the lines that are sampled. Indices: which of `counts` the values of a line belong to, from element
// `begin` on.
template <Keep kKeep, class Indices>
[[gnu::always_inline]] inline void count_by(const Values& chunk, const Indices& indices,
                                            std::uint32_t* counts) noexcept {
  std::memset(counts, 0, kCounts * sizeof *counts);
  const unsigned share = sample_share(chunk.count);
  const std::uint32_t group_elements = kLineElements << share;
  // Neighbours are often equal: two tables, so that one sum need not wait for the other.
  std::uint32_t more[kCounts] = {};
  for (std::uint32_t group = 0; group * group_elements < chunk.count; ++group) {
    fetch_sampled(chunk, group, share);
    const std::uint32_t begin = sampled_element(group, share);
    if (begin + kLineElements > chunk.count) {  // the last line, if it isn't full, or there is none
      const Classifier<kKeep> classify(chunk);
      for (std::uint32_t i = begin; i < chunk.count; ++i) {
        const Classified value = classify(input_bits(chunk, i), i);
        ++counts[value.level * 256 + ((value.kept & kMagnitudeMask) >> kMantissaBits)];
      }
      break;
    }
    const auto index = indices(begin);
    for (std::uint32_t i = 0; i < kLineElements; i += 2) {
      ++counts[index.of[i]];
      ++more[index.of[i + 1]];
    }
  }
  for (std::uint32_t i = 0; i < kCounts; ++i) counts[i] += more[i];
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
