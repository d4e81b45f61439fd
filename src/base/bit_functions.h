// Always-inlined replacements for those functions of <bit> that kernels use, and a choice without a branch. A
// kernel's file may be compiled for an instruction set that not every machine has. If an inline function or a
// template were not inlined there, as at -O0, the file would contain a copy of it, and the linker might keep
// that copy for the whole program.
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

// The first where `condition` holds, otherwise the second. Both are computed: a branch would be mispredicted,
// and compilers don't vectorize a loop with one.
[[gnu::always_inline]] constexpr std::uint32_t chosen(bool condition, std::uint32_t first,
                                                      std::uint32_t second) noexcept {
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
  return (first & mask) | (second & ~mask);
}

}  // namespace deltawire
