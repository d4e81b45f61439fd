// Reference kernel: which values are sent.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kGroup = 32;  // values that are looked at together: most groups have nothing to send

// Stages what a group of `count` values from `at` on has to send, behind `pairs` others.
template <bool kResidual, bool kKeys>
std::uint32_t collect_group(const PairInput& input, std::uint64_t at, std::uint32_t count, std::uint32_t cut,
                            const Staging& staging, std::uint32_t pairs) noexcept {
  float values[kGroup];
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    float x = input.in[at + i];
    if constexpr (kResidual) x += input.residual[at + i];
    if constexpr (kResidual) input.left[at + i] = x;
    values[i] = x;
    const auto bits = static_cast<std::int32_t>(bit_cast<std::uint32_t>(x) & kMagnitudeMask);
    kept |= bits >= static_cast<std::int32_t>(cut) ? 1U : 0U;
  }
  if (kept == 0) return pairs;
  for (std::uint32_t i = 0; i < count; ++i) {  // without a branch: written always, counted if kept
    staging.keys[pairs] = kKeys ? input.keys[at + i] : static_cast<std::uint32_t>(at + i);
    staging.values[pairs] = values[i];
    pairs += (bit_cast<std::uint32_t>(values[i]) & kMagnitudeMask) >= cut ? 1U : 0U;
  }
  return pairs;
}

template <bool kResidual, bool kKeys>
Collected collect_chunk(const PairInput& input, std::uint64_t& at, std::uint32_t cut,
                        const Staging& staging) noexcept {
  std::uint32_t pairs = 0;
  while (at < input.count && pairs < kChunkPairs) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t room = kChunkPairs - pairs;
    std::uint32_t count = left < kGroup ? static_cast<std::uint32_t>(left) : kGroup;
    count = room < count ? room : count;
    pairs = count == kGroup ? collect_group<kResidual, kKeys>(input, at, kGroup, cut, staging, pairs)
                            : collect_group<kResidual, kKeys>(input, at, count, cut, staging, pairs);
    at += count;
  }
  return {staging.keys, staging.values, pairs, at};
}

}  // namespace

Collected collect(const PairInput& input, std::uint64_t& at, std::uint32_t cut, const Staging& staging) {
  if (input.keys != nullptr) return collect_chunk<false, true>(input, at, cut, staging);
  return input.residual != nullptr ? collect_chunk<true, false>(input, at, cut, staging)
                                   : collect_chunk<false, false>(input, at, cut, staging);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
