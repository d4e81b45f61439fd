// Static tables for short chunks: shapes of histograms that gradients often have, laid at any exponent.
#pragma once

#include "codecs/gcomp/gcomp_table.h"

namespace deltawire::gcomp {

inline constexpr std::uint32_t kStaticTops = 5;  // an encoder tries this many places for each shape

struct StaticShape {
  std::uint8_t exponents[kStaticExponents];  // of the top exponent, and of each one below it in turn
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

// Whether a shape whose first exponent is `top` lies within exponents 1 to 254.
inline constexpr bool static_fits(std::uint32_t top) noexcept {
  return top >= kStaticExponents && top <= 254;
}

// Lengths of the static table `id` (1 to kStaticTables) at exponent `top`, all at one level. REQUIRES:
// static_fits(top).
inline void static_lengths(std::uint32_t id, std::uint32_t top, std::uint32_t level,
                           CodeLengths& lengths) noexcept {
  const StaticShape& shape = kStaticShapes[id - 1];
  lengths = {};
  lengths.base = top - kStaticExponents;
  for (std::uint32_t i = 0; i < kStaticExponents; ++i) {
    lengths.bits[level * kRows + kStaticExponents - i] = shape.exponents[i];
  }
  lengths.bits[kEscapeSlot] = shape.escape;
  lengths.bits[kZeroSlot] = shape.zero;
}

}  // namespace deltawire::gcomp
