// The threshold filter (section 3.2, phase 3): which codes are sent, and the table that finds them.
#pragma once

#include <bit>
#include <span>

#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd {

// What codes stand for: code_value(sum, powers, L). REQUIRES: sum > 0.
struct CodeScale {
  double sum = 0;
  const double* powers = nullptr;

  std::uint32_t bits(std::uint32_t code) const noexcept {
    return std::bit_cast<std::uint32_t>(code_value(sum, powers, code));
  }
};

// The largest code <= limit whose value isn't 0.
std::uint32_t last_code(const CodeScale& scale, std::uint32_t limit) noexcept;

// `tau=auto`: the smallest code L for which at least `wanted` values are >= its value, and `last` if there is
// none. A sample guesses L, and counting over all values decides: the guess only saves time. `sample` has
// room for kChunkPairs numbers, overwritten. REQUIRES: input.count > 0, wanted > 0.
std::uint32_t code_for_share(const Kernels& kernels, const PairInput& input, const CodeScale& scale,
                             std::uint64_t wanted, std::uint32_t last, std::span<float> sample);

// The smallest code that still sends every value that `last` would send. `least`: the smallest magnitude
// above 0, or 0 where it isn't known.
std::uint32_t code_for_all(const Kernels& kernels, const PairInput& input, const CodeScale& scale,
                           std::uint32_t last, std::uint32_t least);

// Fills `values` (kCodes) and `starts` (kStarts), the codebook's own memory, for the codes 0 ... last.
Codebook make_codebook(const CodeScale& scale, std::uint32_t last, std::span<std::uint32_t> values,
                       std::span<std::uint16_t> starts) noexcept;

}  // namespace deltawire::fastsgd
