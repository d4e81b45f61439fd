// The table of kernels, and those that every target compiles from here: sums and counts over all values, and
// a chunk's head.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

template <bool kResidual>
float value_of(const PairInput& input, std::uint64_t i) noexcept {
  if constexpr (kResidual) return input.in[i] + input.residual[i];
  return input.in[i];
}

constexpr unsigned kMantissaBits = 23;
constexpr unsigned kMantissaBitsOfDouble = 52;
constexpr std::uint64_t kInfinityBitsOfDouble = 0x7FF0000000000000;

// The unit in which a block's magnitudes are counted: 2^(e - 29), where the largest magnitude m has
// 2^e <= m < 2^(e + 1). A magnitude is multiplied by two factors, as one alone may be beyond float32.
struct Unit {
  static constexpr std::uint32_t kBits = 29;  // of the largest, behind its first
  static constexpr std::uint32_t kBias = 127;
  static constexpr std::uint32_t kLargestExponent = 254;  // biased, as it stands in a float
  static constexpr std::uint32_t kBiasOfDouble = 1023;

  float first;
  float second;
  double value;

  explicit Unit(std::uint32_t largest) noexcept {
    // Biased. That of subnormals is 0, not 1 as spec.md has it: they are whole numbers of either unit.
    const std::uint32_t exponent = largest >> kMantissaBits;
    const std::uint32_t all = kBias + kBits + kBias - exponent;  // of the product of both, biased
    const std::uint32_t one = all < kLargestExponent ? all : kLargestExponent;
    first = bit_cast<float>(one << kMantissaBits);
    second = bit_cast<float>((all - one + kBias) << kMantissaBits);
    value =
        bit_cast<double>((std::uint64_t{kBiasOfDouble} + exponent - kBias - kBits) << kMantissaBitsOfDouble);
  }

  std::uint32_t count(float x) const noexcept {
    const float magnitude = bit_cast<float>(magnitude_bits(x));
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(magnitude * first * second));
  }
};

// Extremes of magnitudes, as signed numbers, which every instruction set compares. One is subtracted before
// the least is sought, so that 0 becomes the largest number.
struct Extremes {
  std::int32_t largest = 0;
  std::int32_t least_but_one = static_cast<std::int32_t>(kMagnitudeMask);
};

template <bool kPairs>
Extremes extremes_of(const PairInput& input, std::uint64_t from, std::uint64_t end) noexcept {
  Extremes found;
  if constexpr (!kPairs) {
    const float* const residual = input.residual != nullptr ? input.residual + from : nullptr;
    found.largest = static_cast<std::int32_t>(largest_magnitude(input.in + from, residual, end - from));
    return found;
  }
  for (std::uint64_t i = from; i < end; ++i) {
    const std::uint32_t bits = magnitude_bits(input.in[i]);
    const auto magnitude = static_cast<std::int32_t>(bits);
    const auto but_one = static_cast<std::int32_t>((bits - 1) & kMagnitudeMask);
    found.largest = magnitude > found.largest ? magnitude : found.largest;
    found.least_but_one = but_one < found.least_but_one ? but_one : found.least_but_one;
  }
  return found;
}

template <bool kResidual>
double sum_of_block(const PairInput& input, std::uint64_t from, std::uint64_t end,
                    std::uint32_t largest) noexcept {
  if (largest >= kInfinityBits) return bit_cast<double>(kInfinityBitsOfDouble);
  const Unit unit(largest);
  std::uint64_t units = 0;
  // Four of less than 2^30 have room in 32 bits: a vector's lanes are widened once.
  const std::uint64_t quarter = (end - from) / 4;
  for (std::uint64_t i = from; i < from + quarter; ++i) {
    std::uint32_t four = 0;
    for (std::uint32_t j = 0; j < 4; ++j) four += unit.count(value_of<kResidual>(input, i + j * quarter));
    units += four;
  }
  for (std::uint64_t i = from + 4 * quarter; i < end; ++i) units += unit.count(value_of<kResidual>(input, i));
  return static_cast<double>(units) * unit.value;
}

// Behind the last pair from `first` on whose key is in the same block.
std::uint64_t end_of_block(const PairInput& input, std::uint64_t first) noexcept {
  constexpr std::uint64_t kTogether = 32;
  const std::uint32_t block = input.keys[first] / kSumBlock;
  std::uint64_t end = first + 1;
  while (end + kTogether <= input.count && input.keys[end + kTogether - 1] / kSumBlock == block) {
    end += kTogether;
  }
  while (end < input.count && input.keys[end] / kSumBlock == block) ++end;
  return end;
}

template <bool kResidual, bool kPairs>
Totals sum_values(const PairInput& input) noexcept {
  double total = 0;
  std::int32_t least_but_one = static_cast<std::int32_t>(kMagnitudeMask);
  for (std::uint64_t from = 0, end = 0; from < input.count; from = end) {
    const std::uint64_t left = input.count - from;
    end = kPairs ? end_of_block(input, from) : from + (left < kSumBlock ? left : kSumBlock);
    const Extremes found = extremes_of<kPairs>(input, from, end);
    total += sum_of_block<kResidual>(input, from, end, static_cast<std::uint32_t>(found.largest));
    least_but_one = found.least_but_one < least_but_one ? found.least_but_one : least_but_one;
  }
  return {total, kPairs ? static_cast<std::uint32_t>(least_but_one) + 1 : 0};
}

Totals sum(const PairInput& input) {
  if (input.keys != nullptr) return sum_values<false, true>(input);
  return input.residual != nullptr ? sum_values<true, false>(input) : sum_values<false, false>(input);
}

template <bool kResidual>
std::uint32_t smallest_value(const PairInput& input, std::int32_t least) noexcept {
  auto found = static_cast<std::int32_t>(kInfinityBits);
  for (std::uint64_t i = 0; i < input.count; ++i) {
    const auto bits = static_cast<std::int32_t>(magnitude_bits(value_of<kResidual>(input, i)));
    const std::int32_t allowed = bits >= least ? bits : static_cast<std::int32_t>(kInfinityBits);
    found = allowed < found ? allowed : found;
  }
  return static_cast<std::uint32_t>(found);
}

std::uint32_t smallest(const PairInput& input, std::uint32_t least) {
  const auto bits = static_cast<std::int32_t>(least);
  return input.residual != nullptr ? smallest_value<true>(input, bits) : smallest_value<false>(input, bits);
}

// Magnitudes as signed numbers keep their order, and every instruction set compares signed numbers.
template <bool kResidual>
Counts count_values(const PairInput& input, std::int32_t low, std::int32_t high) noexcept {
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

Counts count_at_least(const PairInput& input, std::uint32_t low, std::uint32_t high) {
  const auto first = static_cast<std::int32_t>(low);
  const auto second = static_cast<std::int32_t>(high);
  return input.residual != nullptr ? count_values<true>(input, first, second)
                                   : count_values<false>(input, first, second);
}

}  // namespace

// A chunk's bytes: its head, then the streams.
std::uint32_t write_chunk(const ChunkPairs& chunk, unsigned flag_bits, std::byte* out) {
  store_le(out, static_cast<std::uint16_t>(chunk.pairs));
  if (chunk.pairs == 0) return kEmptyHeadBytes;
  // An or of all gaps has the bits that the longest has.
  std::uint32_t gaps = 0;
  for (std::uint32_t i = 1; i < chunk.pairs; ++i) gaps |= chunk.gap_at(i);
  const auto key_bits = bit_width(gaps);
  const auto code_bits = bit_width(chunk.range.highest - chunk.range.lowest);
  store_le(out + 2, static_cast<std::uint16_t>(chunk.range.lowest | code_bits << kMaxCodeBits));
  out[4] = static_cast<std::byte>(key_bits);
  store_le(out + 5, chunk.keys[0]);
  std::byte* end = write_values(chunk, code_bits, out + kHeadBytes);
  if (key_bits > 0) end = write_gaps(chunk, key_bits, flag_bits, end);
  return static_cast<std::uint32_t>(end - out);
}

Fault read_head(const ChunkBytes& chunk, bool is_first, bool is_last, Head& head) {
  if (chunk.bytes < kEmptyHeadBytes) return &faults::kTruncated;
  head.pairs = load_le<std::uint16_t>(chunk.at);
  if (head.pairs > kChunkPairs || (!is_last && head.pairs != kChunkPairs)) return &faults::kPairCount;
  if (head.pairs == 0) {
    if (!is_first) return &faults::kPairCount;
    return chunk.bytes > kEmptyHeadBytes ? &faults::kTrailingBytes : nullptr;
  }
  if (chunk.bytes < kHeadBytes) return &faults::kTruncated;
  const std::uint32_t codes = load_le<std::uint16_t>(chunk.at + 2);
  head.base = codes & kMaxCode;
  head.code_bits = codes >> kMaxCodeBits;
  head.key_bits = static_cast<unsigned>(chunk.at[4]);
  head.first_key = load_le<std::uint32_t>(chunk.at + 5);
  return head.code_bits > kMaxCodeBits || head.key_bits > kMaxKeyBits ? &faults::kHead : nullptr;
}

extern constexpr Kernels kKernels = {sum,         smallest,   count_at_least, collect,     quantize,
                                     write_chunk, decode_row, write_values,   place_values};

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
