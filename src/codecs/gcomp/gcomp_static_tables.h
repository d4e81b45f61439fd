// Static tables for short chunks: shapes of histograms that gradients often have, laid at any exponent.
#pragma once

#include "codecs/gcomp/gcomp_table.h"

namespace deltawire::gcomp {

inline constexpr std::uint32_t kStaticBases = 5;  // an encoder tries this many places for each shape

struct StaticShape {
  std::uint8_t exponents[kStaticExponents];  // of the base exponent, and of each one below it in turn
  std::uint8_t escape;
  std::uint8_t zero;
};

// Optimal within 8 bits for normally distributed values, for Laplace-distributed ones, and for these among as
// many zeros.
inline constexpr StaticShape kStaticShapes[kStaticTables] = {
    {{5, 2, 2, 2, 3, 5, 5, 7, 8, 8, 8, 8}, 8, 8},
    {{6, 3, 2, 2, 3, 3, 4, 6, 7, 7, 8, 8}, 8, 8},
    {{7, 4, 3, 3, 4, 4, 6, 6, 7, 8, 8, 8}, 8, 1},
};

// Whether a shape whose first exponent is `base` lies within exponents 1 to 254.
inline constexpr bool static_fits(std::uint32_t base) noexcept {
  return base >= kStaticExponents && base <= 254;
}

// Lengths of the static table `id` (1 to kStaticTables) at exponent `base`. REQUIRES: static_fits(base).
inline void static_lengths(std::uint32_t id, std::uint32_t base, CodeLengths& lengths) noexcept {
  const StaticShape& shape = kStaticShapes[id - 1];
  lengths = {};
  for (std::uint32_t i = 0; i < kStaticExponents; ++i) {
    lengths.bits[symbol_of(base - i, 0)] = shape.exponents[i];
  }
  lengths.bits[kPlainSymbols] = shape.escape;
  lengths.bits[kZeroSymbol] = shape.zero;
}

}  // namespace deltawire::gcomp
