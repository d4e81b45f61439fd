// Arithmetic on untrusted numbers: overflow gives a distinct result, never a wrapped, smaller number.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace deltawire {

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

inline std::uint64_t sum_or_max(std::uint64_t a, std::uint64_t b) noexcept {
  return checked_add(a, b).value_or(std::numeric_limits<std::uint64_t>::max());
}

inline std::uint64_t product_or_max(std::uint64_t a, std::uint64_t b) noexcept {
  return checked_mul(a, b).value_or(std::numeric_limits<std::uint64_t>::max());
}

// Whether [offset, offset + length) lies inside [0, size).
inline bool range_fits(std::uint64_t offset, std::uint64_t length, std::uint64_t size) noexcept {
  return offset <= size && length <= size - offset;
}

inline constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) noexcept {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace deltawire
