// What is asked of lists of float32 values.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace deltawire {

// Whether no value is NaN or infinite.
inline bool all_finite(std::span<const float> values) noexcept {
  constexpr std::uint32_t kExponent = 0x7F800000;
  constexpr std::size_t kBlock = 4096;
  for (; !values.empty(); values = values.subspan(std::min(kBlock, values.size()))) {
    std::uint32_t found = 0;
    for (const float value : values.first(std::min(kBlock, values.size()))) {
      found |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent ? 1U : 0U;
    }
    if (found != 0) return false;
  }
  return true;
}

// In double, one value after another.
inline double sum_of_squares(std::span<const float> values) noexcept {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

}  // namespace deltawire
