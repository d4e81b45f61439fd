// Loads and stores of little-endian numbers at any address, on machines of any byte order.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace deltawire {

template <std::unsigned_integral T>
[[gnu::always_inline]] constexpr T to_little_endian(T value) noexcept {
  if constexpr (std::endian::native == std::endian::big && sizeof(T) > 1) {
    T swapped = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      swapped = static_cast<T>((swapped << 8) | (value & 0xFF));
      value = static_cast<T>(value >> 8);
    }
    return swapped;
  }
  return value;
}

template <std::unsigned_integral T>
[[gnu::always_inline]] inline T load_le(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return to_little_endian(value);
}

template <std::unsigned_integral T>
[[gnu::always_inline]] inline void store_le(std::byte* at, T value) noexcept {
  value = to_little_endian(value);
  std::memcpy(at, &value, sizeof value);
}

}  // namespace deltawire
