// Always-inlined replacements for those functions of <bit> that kernels use, a choice without a branch, and
// the bits of a float32. A kernel's file may be compiled for an instruction set that not every machine has.
// If an inline function or a template were not inlined there, as at -O0, the file would contain a copy of it,
// and the linker might keep that copy for the whole program.
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

// The bits of a float32. Those of |x| order as the values do, with Inf and NaN on top.
inline constexpr std::uint32_t kSignBit = 0x80000000;
inline constexpr std::uint32_t kMagnitudeMask = 0x7FFFFFFF;
inline constexpr std::uint32_t kInfinityBits = 0x7F800000;  // this magnitude is Inf, larger ones are NaN

[[gnu::always_inline]] inline std::uint32_t magnitude_bits(float x) noexcept {
  return bit_cast<std::uint32_t>(x) & kMagnitudeMask;
}

// The largest of in + residual; at least kInfinityBits if any isn't finite. `residual` may be null: 0.
[[gnu::always_inline]] inline std::uint32_t largest_magnitude(const float* in, const float* residual,
                                                              std::uint64_t count) noexcept {
  std::uint32_t largest = 0;
  if (residual == nullptr) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint32_t bits = magnitude_bits(in[i]);
      largest = bits > largest ? bits : largest;
    }
    return largest;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = magnitude_bits(in[i] + residual[i]);
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

}  // namespace deltawire
