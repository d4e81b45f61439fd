// The rules of spec.md, 6.1 to 6.3, for single values, as the reference applies them; and, for every target's
// vectors, how encoders for 64 lanes go over a block and how a histogram is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

inline constexpr std::uint32_t kLineElements = 16;  // a cache line of float32

// How far a significance's exponent lies above `exponent`, plus 1: kFarDistance for infinity, 0 for NaN.
[[gnu::always_inline]] inline std::int32_t distance_of(std::uint32_t exponent, float significance) noexcept {
  const std::uint32_t magnitude = bit_cast<std::uint32_t>(significance) & kMagnitudeMask;
  if (magnitude >= kExponentMask) return magnitude == kExponentMask ? kFarDistance : 0;
  return static_cast<std::int32_t>(magnitude >> kMantissaBits) - static_cast<std::int32_t>(exponent) + 1;
}

// How one value is coded.
struct Classified {
  std::uint32_t level = 0;
  std::uint32_t kept = 0;  // its bits as a decoder will see them
};

// Classifies values by a rule. It copies the rule's numbers, which no store through another pointer can
// change, so that they stay in registers.
template <Keep kKeep>
class Classifier {
 public:
  [[gnu::always_inline]] explicit Classifier(const Values& values) noexcept
      : significance_(values.significance),
        level_(values.rule.level),
        precision_(values.rule.precision),
        highest_cut_(values.rule.precision.highest_cut) {
    for (std::int32_t distance = 0; distance <= kFarDistance; ++distance) {
      levels_[distance] = static_cast<std::uint8_t>(significance_level(distance, values.rule));
    }
  }

  // REQUIRES: `bits` are those of element i, with its residual.
  [[gnu::always_inline]] Classified operator()(std::uint32_t bits, std::uint32_t i) const noexcept {
    const std::uint32_t exponent = (bits & kMagnitudeMask) >> kMantissaBits;
    if constexpr (kKeep == Keep::kEverything) {
      return {exponent == 0 && bits != 0 ? 1U : 0U, bits};
    } else {
      if (exponent > highest_cut_) [[unlikely]]
        return {0, bits};
      std::uint32_t level = level_;
      if constexpr (kKeep == Keep::kSignificance) level = level_of(exponent, significance_[i]);
      const unsigned cut = precision_.cut_at(level);
      const std::uint32_t low = ~(0xFFFFFFFFU << cut);
      // To nearest, ties to even; a carry goes into the exponent.
      const std::uint32_t rounded = (bits + (low >> 1) + (bits >> cut & low & 1)) & ~low;
      // Without branches: where zeros stand is unpredictable.
      const std::uint32_t normal = 0U - (exponent != 0 ? 1U : 0U);
      return {level & normal, rounded & normal};
    }
  }

 private:
  [[gnu::always_inline]] std::uint32_t level_of(std::uint32_t exponent, float significance) const noexcept {
    const std::int32_t distance = distance_of(exponent, significance);
    const std::int32_t above = distance < 0 ? 0 : distance;
    return levels_[above > kFarDistance ? kFarDistance : above];
  }

  const float* significance_;
  std::uint32_t level_;
  Precision precision_;
  std::uint32_t highest_cut_;
  std::uint8_t levels_[kFarDistance + 1];  // by distance
};

[[gnu::always_inline]] inline std::uint32_t input_bits(const Values& values, std::uint32_t i) noexcept {
  const float in = values.in[i];
  return bit_cast<std::uint32_t>(values.residual != nullptr ? in + values.residual[i] : in);
}

// What the cut leaves: exact, as it is at most half a step of `kept`'s last bit and a multiple of x's. NaN
// and Inf can't be corrected later.
[[gnu::always_inline]] inline float left_over(std::uint32_t bits, std::uint32_t kept) noexcept {
  if ((bits & kExponentMask) == kExponentMask) return 0;
  return bit_cast<float>(bits) - bit_cast<float>(kept);
}

// Which line of group `group` is sampled: one of the 2^share lines that make a group. A constant stride would
// see the same columns of a matrix again and again.
[[gnu::always_inline]] inline std::uint32_t sampled_line(std::uint32_t group, unsigned share) noexcept {
  if (share == 0) return 0;
  std::uint32_t hash = group * 0x9E3779B1U;
  hash ^= hash >> 15;
  hash *= 0x85EBCA77U;
  return hash >> (32 - share);
}

// The first element that is sampled of group `group`.
[[gnu::always_inline]] inline std::uint32_t sampled_element(std::uint32_t group, unsigned share) noexcept {
  return ((group << share) + sampled_line(group, share)) * kLineElements;
}

// Memory is asked for whole groups, of which one line is sampled: lines in a row arrive faster than a
// sixteenth of them that lies scattered, and the encoder reads the others next.
inline constexpr std::uint32_t kGroupsAhead = 16;

// `values` may be null.
[[gnu::always_inline]] inline void fetch_lines(const float* values, std::uint32_t begin,
                                               std::uint32_t end) noexcept {
  if (values == nullptr) return;
  // To read, and into the second cache, where the encoder finds them again.
  for (std::uint32_t i = begin; i < end; i += kLineElements) __builtin_prefetch(values + i, 0, 2);
}

[[gnu::always_inline]] inline void fetch_sampled(const Values& chunk, std::uint32_t group,
                                                 unsigned share) noexcept {
  const std::uint32_t group_elements = kLineElements << share;
  const std::uint32_t begin = (group + kGroupsAhead) * group_elements;
  if (begin + group_elements > chunk.count) return;
  fetch_lines(chunk.in, begin, begin + group_elements);
  fetch_lines(chunk.significance, begin, begin + group_elements);
  fetch_lines(chunk.residual, begin, begin + group_elements);
}

template <Keep kKeep, bool kInBytes, class Call>
[[gnu::always_inline]] inline auto for_residual(const Values& values, const Call& call) noexcept {
  return values.residual != nullptr ? call.template operator()<kKeep, kInBytes, true>()
                                    : call.template operator()<kKeep, kInBytes, false>();
}

// Calls `call` with what the values' rule asks for, Keep and whether signs and mantissas are in bytes, and
// with whether there is a residual, as its template's arguments.
template <class Call>
[[gnu::always_inline]] inline auto for_values(const Values& values, const Call& call) noexcept {
  switch (values.rule.keep) {
    case Keep::kLevel: break;
    case Keep::kSignificance: return for_residual<Keep::kSignificance, false>(values, call);
    case Keep::kEverything:
      return values.rule.in_bytes() ? for_residual<Keep::kEverything, true>(values, call)
                                    : for_residual<Keep::kEverything, false>(values, call);
  }
  return values.rule.in_bytes() ? for_residual<Keep::kLevel, true>(values, call)
                                : for_residual<Keep::kLevel, false>(values, call);
}

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
  const unsigned share = sample_share(chunk.count);
  const std::uint32_t group_elements = kLineElements << share;
  // Neighbours are often equal: several tables, so that one sum need not wait for the other.
  constexpr std::uint32_t kTables = 4;
  static_assert(kMostSample <= 0xFFFF);
  std::uint16_t tables[kTables][kCounts];
  const std::uint32_t used = chunk.rule.whole() ? 2 * 256 : kCounts;  // one level, and tiny values
  for (auto& table : tables) std::memset(table, 0, used * sizeof *table);
  for (std::uint32_t group = 0; group * group_elements < chunk.count; ++group) {
    fetch_sampled(chunk, group, share);
    const std::uint32_t begin = sampled_element(group, share);
    if (begin + kLineElements > chunk.count) {  // the last line, if it isn't full, or there is none
      const Classifier<kKeep> classify(chunk);
      for (std::uint32_t i = begin; i < chunk.count; ++i) {
        const Classified value = classify(input_bits(chunk, i), i);
        ++tables[0][value.level * 256 + ((value.kept & kMagnitudeMask) >> kMantissaBits)];
      }
      break;
    }
    const auto index = indices(begin);
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < kLineElements; ++i) ++tables[i % kTables][index.of[i]];
  }
  std::memset(counts, 0, kCounts * sizeof *counts);
  for (std::uint32_t i = 0; i < used; ++i) {
    for (const auto& table : tables) counts[i] += table[i];
  }
}

// The kernels of a target with vectors. Coding: count<kKeep, kWhole, kResidual>(), store<...>() of the same,
// and encode<...>(), which codes blocks of kMaxLanes lanes: shorter ones are left to the reference.
template <class Coding>
void histogram(const Values& chunk, std::uint32_t* counts) {
  for_values(chunk, [&]<Keep kKeep, bool kWhole, bool kResidual>() {
    Coding::template count<kKeep, kWhole, kResidual>(chunk, counts);
  });
}

template <class Coding>
EncodedBlock encode_block(const Values& block, const EncodeTable& table, std::byte* out) {
  if (lanes_for(block.count) < kMaxLanes) {
    return kernels_for(TargetId::kReference).encode_block(block, table, out);
  }
  return for_values(block, [&]<Keep kKeep, bool kWhole, bool kResidual>() {
    return Coding::template encode<kKeep, kWhole, kResidual>(block, table, out);
  });
}

template <class Coding>
void store_values(const Values& values, std::byte* out) {
  for_values(values, [&]<Keep kKeep, bool kWhole, bool kResidual>() {
    Coding::template store<kKeep, kWhole, kResidual>(values, out);
  });
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
