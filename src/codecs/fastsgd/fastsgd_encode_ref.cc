// Reference kernels: which values are sent, their codes, and a chunk's three streams of bits.
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

CodeRange quantize(const PairInput& input, const Codebook& book, const Collected& pairs,
                   std::uint16_t* codes) {
  CodeRange range{kMaxCode, 0};
  for (std::uint32_t i = 0; i < pairs.pairs; ++i) {
    const auto value = bit_cast<std::uint32_t>(pairs.values[i]);
    const std::uint32_t bits = value & kMagnitudeMask;
    const std::uint32_t sign = value & ~kMagnitudeMask;
    std::uint32_t code = book.starts[bits >> kStartShift];
    code += book.values[code] > bits ? 1 : 0;  // up to b = 1.03 that is all, and no branch to guess
    while (book.values[code] > bits) ++code;
    codes[i] = static_cast<std::uint16_t>(code | sign >> 16);
    range.lowest = code < range.lowest ? code : range.lowest;
    range.highest = code > range.highest ? code : range.highest;
    if (input.residual != nullptr) {
      input.left[pairs.keys[i]] = bit_cast<float>(value) - bit_cast<float>(book.values[code] | sign);
    }
  }
  return range;
}

std::byte* write_values(const ChunkPairs& chunk, unsigned code_bits, std::byte* out) {
  Appender bits(out);
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) {
    const std::uint32_t code = (chunk.codes[i] & ~std::uint32_t{kSignBit}) - chunk.range.lowest;
    const std::uint32_t sign = (chunk.codes[i] & kSignBit) != 0 ? 1 : 0;
    bits.put(code | sign << code_bits, code_bits + 1);
  }
  return bits.finish();
}

std::byte* write_gaps(const ChunkPairs& chunk, unsigned key_bits, unsigned flag_bits, std::byte* out) {
  const GapLengths lengths(key_bits, flag_bits);
  Appender flags(out);
  for (std::uint32_t i = 1; i < chunk.pairs; ++i) {
    flags.put(lengths.flag_of[bit_width(chunk.gap_at(i))], flag_bits);
  }
  Appender gaps(flags.finish());
  for (std::uint32_t i = 1; i < chunk.pairs; ++i) {
    const std::uint32_t gap = chunk.gap_at(i);
    gaps.put(gap, lengths.of_flag[lengths.flag_of[bit_width(gap)]]);
  }
  return gaps.finish();
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
