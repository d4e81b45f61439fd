// Golomb-Rice codes of the gaps between positions (Sattler et al., "Sparse Binary Compression", IJCNN 2019,
// section II): ones for the gap's high part, a zero, its low bits. So many ones announce a raw gap instead.
#pragma once

#include <cstdint>

namespace deltawire {

inline constexpr unsigned kMaxUnary = 24;
inline constexpr unsigned kMaxRiceParameter = 24;

// The parameter for gaps whose sum, each counted with its position, is `span`:
// b* = 1 + floor(log2(ln(phi - 1) / ln(1 - p))), p = gaps / span, phi the golden ratio (eq. 5), held to
// 0..most and computed without logarithms: b* is the number of j in 0..most-1 with p <= 1 - (phi - 1)^(2^-j),
// and the table holds these bounds times 2^32, rounded down. REQUIRES: gaps and span < 2^32, most <=
// kMaxRiceParameter.
[[gnu::always_inline]] inline unsigned rice_parameter(std::uint64_t gaps, std::uint64_t span,
                                                      unsigned most = kMaxRiceParameter) noexcept {
  constexpr std::uint64_t kBounds[kMaxRiceParameter] = {
      1640531526, 918472838, 486826900, 250732083, 127251137, 64103956, 32172475, 16116475,
      8065811,    4034800,   2017874,   1009055,   504557,    252286,   126144,   63072,
      31536,      15768,     7884,      3942,      1971,      985,      492,      246};
  unsigned parameter = 0;
  while (parameter < most && gaps << 32 <= kBounds[parameter] * span) ++parameter;
  return parameter;
}

// A gap's code, first bit lowest.
struct RiceBits {
  std::uint64_t value = 0;
  unsigned bits = 0;
};

// REQUIRES: kMaxUnary + raw_bits <= 56, and gap < 2^raw_bits.
[[gnu::always_inline]] inline RiceBits rice_bits_of(std::uint32_t gap, unsigned parameter,
                                                    unsigned raw_bits) noexcept {
  const std::uint32_t unary = gap >> parameter;
  if (unary >= kMaxUnary) {
    return {((std::uint64_t{1} << kMaxUnary) - 1) | (std::uint64_t{gap} << kMaxUnary), kMaxUnary + raw_bits};
  }
  const std::uint64_t low = gap & ((1U << parameter) - 1);
  return {((std::uint64_t{1} << unary) - 1) | (low << (unary + 1)), unary + 1 + parameter};
}

// Rice codes with signs, where gaps are short: decoded a byte at a time, by what the byte means in each place
// of a code that it may begin in. The places follow from each other by one shift a byte, as all that the byte
// leads to stands in one word (P. Vognsen, "Shift-based DFAs", 2022); nothing waits for a table to be read.
// Escapes are unknown here: all ones before a zero count.

// Places in a code that a byte may begin in: 0 among the ones, 1 + j before the low bit j, 1 + parameter
// before the sign.
inline constexpr unsigned kMostPlaces = 4;
inline constexpr unsigned kPlaceBits = 64 / kMostPlaces;  // of a place in RiceBytes::next
inline constexpr unsigned kMostDenseParameter = kMostPlaces - 2;

// An element that isn't 0, by its sign; 0 is 0. As vectors look up values by the lowest bits.
inline constexpr std::uint8_t kPositiveDigit = 1;
inline constexpr std::uint8_t kNegativeDigit = 2;

// By bytes, and the places that they begin in.
template <unsigned kParameter>
struct RiceBytes {
  static_assert(kParameter <= kMostDenseParameter);
  static constexpr unsigned kMostElements = 8U << kParameter;  // a byte of ones

  // From bit 16 p on: 16 times the place that the byte leads to from place p.
  std::uint64_t next[256] = {};
  // The elements that it stands for, then zeros; and how many they are.
  std::uint8_t digits[256 * kMostPlaces][kMostElements] = {};
  std::uint8_t elements[256 * kMostPlaces] = {};
};

template <unsigned kParameter>
[[gnu::always_inline]] constexpr RiceBytes<kParameter> make_rice_bytes() noexcept {
  RiceBytes<kParameter> table{};
  for (unsigned i = 0; i < 256 * kMostPlaces; ++i) {
    const unsigned byte = i / kMostPlaces;
    const unsigned begin = i % kMostPlaces;
    if (begin > kParameter + 1) continue;
    unsigned place = begin;
    unsigned elements = 0;
    for (unsigned at = 0; at < 8; ++at) {
      const unsigned bit = byte >> at & 1;
      if (place == 0) {
        elements += bit << kParameter;
        place = bit == 0 ? 1 : 0;
      } else if (place <= kParameter) {
        elements += bit << (place - 1);
        ++place;
      } else {
        table.digits[i][elements++] = bit == 0 ? kPositiveDigit : kNegativeDigit;
        place = 0;
      }
    }
    table.elements[i] = static_cast<std::uint8_t>(elements);
    table.next[byte] |= std::uint64_t{place} * kPlaceBits << (begin * kPlaceBits);
  }
  return table;
}

// 11 to 35 KiB, made by the compiler.
template <unsigned kParameter>
inline constexpr RiceBytes<kParameter> kRiceBytes = make_rice_bytes<kParameter>();

}  // namespace deltawire
