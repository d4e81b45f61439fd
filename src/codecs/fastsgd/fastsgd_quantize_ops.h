// What vector kernels that guess codes do one by one.
#pragma once

#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Some values whose codes are guessed.
template <unsigned kLanes>
struct Guesses {
  alignas(32) std::uint32_t codes[kLanes];
  alignas(32) std::uint32_t magnitudes[kLanes];
  alignas(32) std::int32_t near[kLanes];  // the whole number nearest to the logarithm
};

// Compares those of the mask with their thresholds, which decide.
template <unsigned kLanes>
[[gnu::always_inline]] inline void decide(const Codebook& book, std::uint32_t mask,
                                          Guesses<kLanes>& guesses) noexcept {
  for (; mask != 0; mask &= mask - 1) {
    const unsigned lane = countr_zero(mask);
    const std::int32_t near = guesses.near[lane];
    std::uint32_t tried = near < 0 ? 0 : static_cast<std::uint32_t>(near);
    tried = tried < book.last ? tried : book.last;
    guesses.codes[lane] = tried + (guesses.magnitudes[lane] < book.values[tried] ? 1 : 0);
  }
}

// Leaves x less its code's value, of `count` pairs from `at` on.
[[gnu::always_inline]] inline void subtract(const PairInput& input, const Codebook& book,
                                            const Collected& pairs, const std::uint16_t* codes,
                                            std::uint32_t at, std::uint32_t count) noexcept {
  for (std::uint32_t i = at; i < at + count; ++i) {
    const std::uint32_t sign = bit_cast<std::uint32_t>(pairs.values[i]) & ~kMagnitudeMask;
    const std::uint32_t value = book.values[codes[i] & kMaxCode] | sign;
    input.left[pairs.keys[i]] = pairs.values[i] - bit_cast<float>(value);
  }
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
