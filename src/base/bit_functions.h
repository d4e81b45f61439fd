// What kernels take of <bit>, in functions that are always inlined. A kernel's file may be compiled for an
// instruction set that not every machine has. Of an inline function or a template that isn't inlined there,
// as at -O0, it would hold a copy, and of equal copies the linker keeps any one for the whole program.
#pragma once

#include <cstdint>

namespace deltawire {

template <class To, class From>
[[gnu::always_inline]] constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}

[[gnu::always_inline]] constexpr unsigned countr_zero(std::uint64_t value) noexcept {
  return value == 0 ? 64 : static_cast<unsigned>(__builtin_ctzll(value));
}

[[gnu::always_inline]] constexpr unsigned countr_one(std::uint64_t value) noexcept {
  return countr_zero(~value);
}

[[gnu::always_inline]] constexpr unsigned bit_width(std::uint64_t value) noexcept {
  return value == 0 ? 0 : 64 - static_cast<unsigned>(__builtin_clzll(value));
}

[[gnu::always_inline]] constexpr unsigned popcount(std::uint64_t value) noexcept {
  return static_cast<unsigned>(__builtin_popcountll(value));
}

}  // namespace deltawire
