// Reference kernels: the sum, the threshold, the codes. Chunks are written in fastsgd_write_ref.cc and read
// in fastsgd_decode_ref.cc.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/kernels/lanes.h"
#include "codecs/kernels/magnitude.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kGroup = 32;  // values that are looked at together: most groups have nothing to send

template <bool kResidual>
float value_of(const Input& input, std::uint64_t i) noexcept {
  if constexpr (kResidual) return input.in[i] + input.residual[i];
  return input.in[i];
}

double magnitude(float x) noexcept {
  return static_cast<double>(bit_cast<float>(magnitude_bits(x)));
}

template <bool kResidual>
double sum_dense(const Input& input) noexcept {
  double total = 0;
  for (std::uint64_t block = 0; block < input.count; block += kSumBlock) {
    const std::uint64_t left = input.count - block;
    const std::uint64_t end = block + (left < kSumBlock ? left : kSumBlock);
    double lanes[kSumLanes] = {};
    std::uint64_t i = block;
    for (; end - i >= kSumLanes; i += kSumLanes) {
      for (std::uint32_t j = 0; j < kSumLanes; ++j) {
        lanes[j] += magnitude(value_of<kResidual>(input, i + j));
      }
    }
    for (std::uint32_t j = 0; i < end; ++i, ++j) lanes[j] += magnitude(value_of<kResidual>(input, i));
    total += folded(lanes);
  }
  return total;
}

// The same tree: absent keys would have added zeros, which change nothing.
double sum_pairs(const Input& input) noexcept {
  double total = 0;
  for (std::uint64_t i = 0; i < input.count;) {
    const std::uint32_t block = input.keys[i] / kSumBlock;
    double lanes[kSumLanes] = {};
    for (; i < input.count && input.keys[i] / kSumBlock == block; ++i) {
      lanes[input.keys[i] % kSumLanes] += magnitude(input.in[i]);
    }
    total += folded(lanes);
  }
  return total;
}

double sum(const Input& input) {
  if (input.keys != nullptr) return sum_pairs(input);
  return input.residual != nullptr ? sum_dense<true>(input) : sum_dense<false>(input);
}

// Magnitudes as signed numbers keep their order, and every instruction set compares signed numbers.
template <bool kResidual>
Counts count_values(const Input& input, std::int32_t low, std::int32_t high) noexcept {
  Counts counts{};
  for (std::uint64_t block = 0; block < input.count; block += kSumBlock) {
    const std::uint64_t left = input.count - block;
    const std::uint64_t end = block + (left < kSumBlock ? left : kSumBlock);
    std::int32_t at_least_low = 0;
    std::int32_t at_least_high = 0;
    for (std::uint64_t i = block; i < end; ++i) {
      const auto bits = static_cast<std::int32_t>(magnitude_bits(value_of<kResidual>(input, i)));
      at_least_low += bits >= low ? 1 : 0;
      at_least_high += bits >= high ? 1 : 0;
    }
    counts.low += static_cast<std::uint64_t>(at_least_low);
    counts.high += static_cast<std::uint64_t>(at_least_high);
  }
  return counts;
}

Counts count_at_least(const Input& input, std::uint32_t low, std::uint32_t high) {
  const auto first = static_cast<std::int32_t>(low);
  const auto second = static_cast<std::int32_t>(high);
  return input.residual != nullptr ? count_values<true>(input, first, second)
                                   : count_values<false>(input, first, second);
}

// Stages what a group of `count` values from `at` on has to send, behind `pairs` others.
template <bool kResidual, bool kKeys>
std::uint32_t collect_group(const Input& input, std::uint64_t at, std::uint32_t count, std::uint32_t cut,
                            const Staging& staging, std::uint32_t pairs) noexcept {
  std::uint32_t values[kGroup];
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const float x = value_of<kResidual>(input, at + i);
    if constexpr (kResidual) input.residual[at + i] = x;
    values[i] = bit_cast<std::uint32_t>(x);
    const auto bits = static_cast<std::int32_t>(values[i] & kMagnitudeMask);
    kept |= bits >= static_cast<std::int32_t>(cut) ? 1U : 0U;
  }
  if (kept == 0) return pairs;
  for (std::uint32_t i = 0; i < count; ++i) {  // without a branch: written always, counted if kept
    staging.keys[pairs] = kKeys ? input.keys[at + i] : static_cast<std::uint32_t>(at + i);
    staging.values[pairs] = values[i];
    pairs += (values[i] & kMagnitudeMask) >= cut ? 1U : 0U;
  }
  return pairs;
}

template <bool kResidual, bool kKeys>
std::uint32_t collect_chunk(const Input& input, std::uint64_t& at, std::uint32_t cut,
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
  return pairs;
}

std::uint32_t collect(const Input& input, std::uint64_t& at, std::uint32_t cut, const Staging& staging) {
  if (input.keys != nullptr) return collect_chunk<false, true>(input, at, cut, staging);
  return input.residual != nullptr ? collect_chunk<true, false>(input, at, cut, staging)
                                   : collect_chunk<false, false>(input, at, cut, staging);
}

CodeRange quantize(const Input& input, const Codebook& book, std::uint32_t pairs, const Staging& staging) {
  CodeRange range{kMaxCode, 0};
  for (std::uint32_t i = 0; i < pairs; ++i) {
    const std::uint32_t value = staging.values[i];
    const std::uint32_t bits = value & kMagnitudeMask;
    const std::uint32_t sign = value & ~kMagnitudeMask;
    std::uint32_t code = book.starts[bits >> kStartShift];
    code += book.values[code] > bits ? 1 : 0;  // up to b = 1.03 that is all, and no branch to guess
    while (book.values[code] > bits) ++code;
    staging.codes[i] = static_cast<std::uint16_t>(code | sign >> 16);
    range.lowest = code < range.lowest ? code : range.lowest;
    range.highest = code > range.highest ? code : range.highest;
    if (input.residual != nullptr) {
      input.residual[staging.keys[i]] = bit_cast<float>(value) - bit_cast<float>(book.values[code] | sign);
    }
  }
  return range;
}

}  // namespace

extern constexpr Kernels kKernels = {sum, count_at_least, collect, quantize, write_chunk, decode_chunk};

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
