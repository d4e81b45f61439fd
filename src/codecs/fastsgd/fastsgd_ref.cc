// Kernels that look at all values: the sum, the threshold.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/kernels/lanes.h"
#include "codecs/kernels/magnitude.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

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
  constexpr std::uint64_t kTogether = 8;
  double total = 0;
  for (std::uint64_t i = 0; i < input.count;) {
    const std::uint32_t block = input.keys[i] / kSumBlock;
    double lanes[kSumLanes] = {};
    for (; i + kTogether <= input.count && input.keys[i + kTogether - 1] / kSumBlock == block;
         i += kTogether) {
      double magnitudes[kTogether];
      for (std::uint64_t j = 0; j < kTogether; ++j) magnitudes[j] = magnitude(input.in[i + j]);
      for (std::uint64_t j = 0; j < kTogether; ++j) lanes[input.keys[i + j] % kSumLanes] += magnitudes[j];
    }
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

template <bool kResidual>
std::uint32_t smallest_value(const Input& input, std::int32_t least) noexcept {
  auto found = static_cast<std::int32_t>(kInfinityBits);
  for (std::uint64_t i = 0; i < input.count; ++i) {
    const auto bits = static_cast<std::int32_t>(magnitude_bits(value_of<kResidual>(input, i)));
    const std::int32_t allowed = bits >= least ? bits : static_cast<std::int32_t>(kInfinityBits);
    found = allowed < found ? allowed : found;
  }
  return static_cast<std::uint32_t>(found);
}

std::uint32_t smallest(const Input& input, std::uint32_t least) {
  const auto bits = static_cast<std::int32_t>(least);
  return input.residual != nullptr ? smallest_value<true>(input, bits) : smallest_value<false>(input, bits);
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

}  // namespace

extern constexpr Kernels kKernels = {sum,      smallest,    count_at_least, collect,
                                     quantize, write_chunk, decode_row};

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
