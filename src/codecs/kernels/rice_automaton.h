// Rice codes with signs, where gaps are short: decoded a byte at a time, by what the byte means in each place
// of a code that it may begin in. The places follow from each other by one shift a byte, as all that the byte
// leads to stands in one word (P. Vognsen, "Shift-based DFAs", 2022); nothing waits for a table to be read.
#pragma once

#include <cstdint>

namespace deltawire {

// Places in a code that a byte may begin in: 0 among the ones, 1 + j before the low bit j, 1 + parameter
// before the sign.
[[gnu::always_inline]] constexpr unsigned rice_places(unsigned parameter) noexcept {
  return parameter + 2;
}

inline constexpr unsigned kPlaceBits = 16;          // of a place in RiceBytes::next
inline constexpr unsigned kMostDenseParameter = 2;  // the places fill the word, and 32 elements a map

// What a byte stands for.
struct RiceByte {
  // Elements, from bit 0 on: which aren't 0; from bit 32 on which of those are negative.
  std::uint64_t maps = 0;
  // How many elements, and 2^32 times how many of them aren't 0.
  std::uint64_t counts = 0;
};

template <unsigned kParameter>
struct RiceBytes {
  static_assert(kParameter <= kMostDenseParameter);
  // From bit 16 p on: 16 times the place that the byte leads to from place p.
  std::uint64_t next[256] = {};
  RiceByte bytes[256][rice_places(kParameter)] = {};
};

struct RicePlace {
  RiceByte byte{};
  unsigned place = 0;
};

// One bit more. Escapes are unknown here: all ones before a zero count.
[[gnu::always_inline]] constexpr void take_bit(unsigned parameter, unsigned bit, RicePlace& at) noexcept {
  const auto elements = static_cast<unsigned>(at.byte.counts & 0xFF);
  if (at.place == 0) {
    at.byte.counts += std::uint64_t{bit} << parameter;
    at.place = bit == 0 ? 1 : 0;
  } else if (at.place <= parameter) {
    at.byte.counts += std::uint64_t{bit} << (at.place - 1);
    ++at.place;
  } else {
    at.byte.maps |= std::uint64_t{1} << elements | std::uint64_t{bit} << (32 + elements);
    at.byte.counts += (std::uint64_t{1} << 32) + 1;
    at.place = 0;
  }
}

template <unsigned kParameter>
[[gnu::always_inline]] constexpr RiceBytes<kParameter> make_rice_bytes() noexcept {
  RiceBytes<kParameter> table{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (unsigned place = 0; place < rice_places(kParameter); ++place) {
      RicePlace at{{}, place};
      for (unsigned i = 0; i < 8; ++i) take_bit(kParameter, byte >> i & 1, at);
      table.bytes[byte][place] = at.byte;
      table.next[byte] |= std::uint64_t{at.place} * kPlaceBits << (place * kPlaceBits);
    }
  }
  return table;
}

// 10 to 18 KiB, made by the compiler.
template <unsigned kParameter>
inline constexpr RiceBytes<kParameter> kRiceBytes = make_rice_bytes<kParameter>();

}  // namespace deltawire
