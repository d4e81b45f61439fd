// What a chunk's numbers stand for, as a table for vector kernels.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Values of the codes from the chunk's base on, as far as they are allowed, and behind them the same with the
// other sign: a number is a code below its sign.
[[gnu::always_inline]] inline void fill_values(ValueStream& values, const DecodeRules& rules,
                                               const Head& head, float scale) noexcept {
  values.code_bits = head.code_bits;
  const std::uint32_t all = std::uint32_t{1} << head.code_bits;
  for (; values.allowed < all && head.base + values.allowed <= rules.last_code; ++values.allowed) {
    const float value = code_value(rules.sum, rules.powers, head.base + values.allowed);
    if (bit_cast<std::uint32_t>(value) == 0) break;
    values.tables->of_number[values.allowed] = value * scale;
  }
  for (std::uint32_t code = values.allowed; code < all; ++code) values.tables->of_number[code] = 0;
  for (std::uint32_t code = 0; code < all; ++code) {
    const auto bits = bit_cast<std::uint32_t>(values.tables->of_number[code]);
    values.tables->of_number[all + code] = bit_cast<float>(bits ^ ~kMagnitudeMask);
  }
}

// What `count` numbers stand for, and one behind them. Two make a word: a store for each would take as long
// as all the rest.
[[gnu::always_inline]] inline void put_values(const ValueTables& tables, const std::uint16_t* numbers,
                                              std::uint32_t count, float* out) noexcept {
  for (std::uint32_t i = 0; i < count; i += 2) {
    const std::uint64_t low = bit_cast<std::uint32_t>(tables.of_number[numbers[i]]);
    const std::uint64_t high = bit_cast<std::uint32_t>(tables.of_number[numbers[i + 1]]);
    const std::uint64_t both = low | high << 32;
    std::memcpy(out + i, &both, sizeof both);
  }
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
