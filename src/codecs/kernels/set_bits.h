// The places of a word's set bits, as a list.
#pragma once

#include <cstdint>

#include "base/bit_functions.h"

namespace deltawire {

// What set_bits() may write behind the last place.
inline constexpr std::uint32_t kSetBitsSlack = 4;

// Writes `first` plus the place of each set bit, from the lowest on; returns how many they are. A loop that
// ends behind the last one would be foretold wrong most of the time: of so few, four are written always.
[[gnu::always_inline]] inline std::uint32_t set_bits(std::uint64_t word, std::uint32_t first,
                                                     std::uint32_t* out) noexcept {
  constexpr std::uint64_t kLast = std::uint64_t{1} << 63;  // so that there is a place to be found
  const std::uint32_t bits = popcount(word);
  for (std::uint32_t i = 0; i < kSetBitsSlack; ++i) {
    out[i] = first + countr_zero(word | kLast);
    word &= word - 1;
  }
  if (word != 0) [[unlikely]] {
    for (std::uint32_t i = kSetBitsSlack; i < bits; ++i) {
      out[i] = first + countr_zero(word);
      word &= word - 1;
    }
  }
  return bits;
}

}  // namespace deltawire
