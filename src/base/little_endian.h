// Loads and stores of little-endian numbers at any address.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace deltawire {

static_assert(std::endian::native == std::endian::little,
              "values are read and written as the machine has them");

template <std::unsigned_integral T>
[[gnu::always_inline]] inline T load_le(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <std::unsigned_integral T>
[[gnu::always_inline]] inline void store_le(std::byte* at, T value) noexcept {
  std::memcpy(at, &value, sizeof value);
}

}  // namespace deltawire
