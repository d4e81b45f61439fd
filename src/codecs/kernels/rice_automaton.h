// Rice codes with signs, where gaps are short: decoded a byte at a time, by what the byte means in each place
// of a code that it may begin in. The places follow from each other by one shift a byte, as all that the byte
// leads to stands in one word (P. Vognsen, "Shift-based DFAs", 2022); nothing waits for a table to be read.
#pragma once

#include <cstdint>

namespace deltawire {

// Places in a code that a byte may begin in: 0 among the ones, 1 + j before the low bit j, 1 + parameter
// before the sign.
inline constexpr unsigned kMostPlaces = 4;
inline constexpr unsigned kPlaceBits = 64 / kMostPlaces;  // of a place in RiceBytes::next
inline constexpr unsigned kMostDenseParameter = kMostPlaces - 2;

// In a number of counts: elements below, and from this bit on how many of them aren't 0.
inline constexpr unsigned kNonzerosShift = 10;

// By bytes, and the places that they begin in.
struct RiceBytes {
  // From bit 16 p on: 16 times the place that the byte leads to from place p.
  std::uint64_t next[256] = {};
  // Elements, at most 32: from bit 0 on which aren't 0, from bit 32 on which of those are negative.
  std::uint64_t maps[256][kMostPlaces] = {};
  // How many. Those of 8 bytes may be added.
  std::uint16_t counts[256][kMostPlaces] = {};
};

struct RiceByte {
  std::uint64_t maps = 0;
  unsigned elements = 0;
  unsigned nonzeros = 0;
  unsigned place = 0;
};

// One bit more. Escapes are unknown here: all ones before a zero count.
[[gnu::always_inline]] constexpr void take_bit(unsigned parameter, unsigned bit, RiceByte& byte) noexcept {
  if (byte.place == 0) {
    byte.elements += bit << parameter;
    byte.place = bit == 0 ? 1 : 0;
  } else if (byte.place <= parameter) {
    byte.elements += bit << (byte.place - 1);
    ++byte.place;
  } else {
    byte.maps |= std::uint64_t{1} << byte.elements | std::uint64_t{bit} << (32 + byte.elements);
    ++byte.elements;
    ++byte.nonzeros;
    byte.place = 0;
  }
}

[[gnu::always_inline]] constexpr RiceBytes make_rice_bytes(unsigned parameter) noexcept {
  RiceBytes table{};
  for (unsigned value = 0; value < 256; ++value) {
    for (unsigned place = 0; place < parameter + 2; ++place) {
      RiceByte byte{};
      byte.place = place;
      for (unsigned i = 0; i < 8; ++i) take_bit(parameter, value >> i & 1, byte);
      table.maps[value][place] = byte.maps;
      table.counts[value][place] =
          static_cast<std::uint16_t>(byte.elements | byte.nonzeros << kNonzerosShift);
      table.next[value] |= std::uint64_t{byte.place} * kPlaceBits << (place * kPlaceBits);
    }
  }
  return table;
}

// 12 KiB each, made by the compiler.
template <unsigned kParameter>
  requires(kParameter <= kMostDenseParameter)
inline constexpr RiceBytes kRiceBytes = make_rice_bytes(kParameter);

}  // namespace deltawire
