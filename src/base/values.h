// What is asked of lists of values.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace deltawire {

// Whether all are zeros of either sign, compared as bits, because the caller's floating-point mode may treat
// subnormals as zeros. `Value` is float, or std::uint16_t for the bits of a 16-bit float.
template <class Value>
bool all_zeros(std::span<const Value> values) noexcept {
  using Word = std::conditional_t<sizeof(Value) == 4, std::uint32_t, std::uint16_t>;
  constexpr std::size_t kFirst = 16;  // of most tensors these say enough
  constexpr std::size_t kBlock = 1024;
  std::size_t block = kFirst;
  for (std::size_t begin = 0; begin < values.size(); begin += std::exchange(block, kBlock)) {
    Word set = 0;
    for (const Value value : values.subspan(begin, std::min(block, values.size() - begin))) {
      set |= std::bit_cast<Word>(value);
    }
    if (static_cast<Word>(set << 1) != 0) return false;
  }
  return true;
}

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
