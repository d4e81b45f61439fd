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

}  // namespace deltawire
