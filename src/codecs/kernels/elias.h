// Elias' codes of whole numbers from 1 on (P. Elias, "Universal codeword sets and representations of the
// integers", IEEE Transactions on Information Theory 21, 1975), as strings of bits, the first of which is the
// next bit of the stream:
//   gamma  floor(log2 k) zeros, then k in binary, highest bit first;
//   omega  "0" at the end, and before it, as long as k > 1: k in binary, then the same for floor(log2 k).
#pragma once

#include <cstdint>

#include "base/bit_functions.h"
#include "base/bits.h"

namespace deltawire {

inline constexpr unsigned kMaxEliasLog = 16;  // numbers are below 2^17

// A code, first bit lowest: at most 33 bits.
struct EliasBits {
  std::uint64_t value = 0;
  unsigned bits = 0;
};

[[gnu::always_inline]] inline void append_binary(EliasBits& code, std::uint32_t number) noexcept {
  for (unsigned place = bit_width(number); place-- > 0;) {
    code.value |= std::uint64_t{number >> place & 1} << code.bits++;
  }
}

// REQUIRES, here and below: 1 <= number < 2^17.
[[gnu::always_inline]] inline EliasBits gamma_bits_of(std::uint32_t number) noexcept {
  EliasBits code{};
  code.bits = bit_width(number) - 1;
  append_binary(code, number);
  return code;
}

[[gnu::always_inline]] inline EliasBits omega_bits_of(std::uint32_t number) noexcept {
  std::uint32_t groups[4];  // of 65,536: 65,536, 16, 4, 2
  unsigned count = 0;
  while (number > 1) {
    groups[count++] = number;
    number = bit_width(number) - 1;
  }
  EliasBits code{};
  while (count > 0) append_binary(code, groups[--count]);
  ++code.bits;  // the zero
  return code;
}

// `bits` bits behind a leading 1, highest first.
[[gnu::always_inline]] inline std::uint32_t read_binary(BitReader& reader, unsigned bits) noexcept {
  std::uint32_t number = 1;
  for (unsigned i = 0; i < bits; ++i) number = number << 1 | static_cast<std::uint32_t>(reader.get(1));
  return number;
}

// The next number; 0 where it is 2^17 or above. Past the end of the bits: any number, and the reader is
// exhausted. Here and below.
[[gnu::always_inline]] inline std::uint32_t read_gamma(BitReader& reader) noexcept {
  unsigned zeros = 0;
  while (zeros <= kMaxEliasLog && reader.get(1) == 0) ++zeros;
  if (zeros > kMaxEliasLog) return 0;
  return read_binary(reader, zeros);
}

[[gnu::always_inline]] inline std::uint32_t read_omega(BitReader& reader) noexcept {
  std::uint32_t number = 1;
  while (reader.get(1) != 0) {
    if (number > kMaxEliasLog) return 0;
    number = read_binary(reader, number);
  }
  return number;
}

}  // namespace deltawire
