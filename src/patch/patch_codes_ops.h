// The codes that a chunk is made of: Rice codes, numbers near the one before, and elements as ordered
// patterns. Encoder and decoder must agree on everything here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "patch/patch_ops.h"

namespace deltawire::patch {

inline constexpr unsigned kMaxUnary = 24;  // so many ones announce a raw number
inline constexpr unsigned kMaxParameter = 31;
inline constexpr unsigned kGapBits = kMaxChunkBits;  // of a raw gap

// Numbers that are near the one before: the distance in unary up to here, then the number itself.
inline constexpr unsigned kMaxDistance = 12;
inline constexpr unsigned kNumberBits = 6;

// What the numbers of a chunk are near to; at first, these.
struct Before {
  unsigned width = 4;       // of a class's changes
  unsigned long_width = 4;  // of its steps longer than 1
  unsigned parameter = 0;   // of these steps' magnitudes
};

// The Rice parameter for `some` positions among `all`: the number of j in 0..15 with
// some / all < 1 - (phi - 1)^(2^-j), phi the golden ratio, after A. Kiely, "Selecting the Golomb Parameter in
// Rice Coding" (IPN 42-159, 2004); the table has these bounds times 2^24, rounded. REQUIRES: all <= 2^16.
[[gnu::always_inline]] inline unsigned gap_parameter(std::uint64_t some, std::uint64_t all) noexcept {
  constexpr std::uint64_t kBounds[] = {6408339, 3587935, 1902590, 980559, 497874, 250890, 125940, 63094,
                                       31579,   15797,   7900,    3951,   1975,   988,    494,    247};
  unsigned parameter = 0;
  while (parameter < 16 && some << 24 < all * kBounds[parameter]) ++parameter;
  return parameter;
}

// REQUIRES: parameter <= kMaxParameter, number < 2^raw_bits, raw_bits <= 32.
[[gnu::always_inline]] inline void put_rice(BitWriter& out, std::uint32_t number, unsigned parameter,
                                            unsigned raw_bits) noexcept {
  const std::uint32_t unary = number >> parameter;
  if (unary >= kMaxUnary) {
    out.put(((std::uint64_t{1} << kMaxUnary) - 1) | (std::uint64_t{number} << kMaxUnary),
            kMaxUnary + raw_bits);
    return;
  }
  const std::uint64_t low = number & ((std::uint64_t{1} << parameter) - 1);
  out.put(((std::uint64_t{1} << unary) - 1) | (low << (unary + 1)), unary + 1 + parameter);
}

// Past the end the number is arbitrary. Sets `fault` for a raw number that needs none.
[[gnu::always_inline]] inline std::uint64_t get_rice(BitWindow& in, unsigned parameter, unsigned raw_bits,
                                                     Fault& fault) noexcept {
  const std::uint64_t window = in.peek();
  const unsigned unary = countr_one(window);
  if (unary < kMaxUnary) [[likely]] {
    in.position += unary + 1 + parameter;
    const std::uint64_t low = window >> (unary + 1) & ((std::uint64_t{1} << parameter) - 1);
    return std::uint64_t{unary} << parameter | low;
  }
  in.position += kMaxUnary + raw_bits;
  const std::uint64_t number = window >> kMaxUnary & ((std::uint64_t{1} << raw_bits) - 1);
  if (number >> parameter < kMaxUnary) fault = Fault::kCode;
  return number;
}

// Distance 0, -1, 1, -2, 2, ... as 0, 1, 2, 3, 4, ...
[[gnu::always_inline]] inline unsigned folded_distance(unsigned number, unsigned before) noexcept {
  return number < before ? 2 * (before - number) - 1 : 2 * (number - before);
}

// REQUIRES: number and `before` < 2^kNumberBits.
[[gnu::always_inline]] inline void put_near(BitWriter& out, unsigned number, unsigned before) noexcept {
  const unsigned distance = folded_distance(number, before);
  if (distance < kMaxDistance) {
    out.put((std::uint64_t{1} << distance) - 1, distance + 1);
  } else {
    out.put(((std::uint64_t{1} << kMaxDistance) - 1) | (std::uint64_t{number} << kMaxDistance),
            kMaxDistance + kNumberBits);
  }
}

// Sets `fault` if the number is above `most`, or in a longer code than it needs.
[[gnu::always_inline]] inline unsigned get_near(BitWindow& in, unsigned before, unsigned most,
                                                Fault& fault) noexcept {
  const std::uint64_t window = in.peek();
  const unsigned distance = countr_one(window);
  if (distance >= kMaxDistance) {
    in.position += kMaxDistance + kNumberBits;
    const auto number = static_cast<unsigned>(window >> kMaxDistance & ((1U << kNumberBits) - 1));
    if (folded_distance(number, before) < kMaxDistance) fault = Fault::kCode;
    if (number > most) fault = Fault::kParameter;
    return number > most ? 0 : number;
  }
  in.position += distance + 1;
  const unsigned half = (distance + 1) / 2;
  if (distance % 2 == 1 ? half > before : half > most - before) {
    fault = Fault::kParameter;
    return 0;
  }
  return distance % 2 == 1 ? before - half : before + half;
}

// A count: its width near the one before, then its bits below the highest.
[[gnu::always_inline]] inline void put_count(BitWriter& out, std::uint32_t count, unsigned& before) noexcept {
  const unsigned width = bit_width(count);
  put_near(out, width, before);
  if (width > 1) out.put(count & ((1U << (width - 1)) - 1), width - 1);
  before = width;
}

[[gnu::always_inline]] inline std::uint32_t get_count(BitWindow& in, unsigned& before,
                                                      Fault& fault) noexcept {
  const unsigned width = get_near(in, before, kMaxChunkBits + 1, fault);
  before = width;
  if (width < 2) return width;
  const std::uint32_t high = 1U << (width - 1);
  const auto low = static_cast<std::uint32_t>(in.peek()) & (high - 1);
  in.position += width - 1;
  return high | low;
}

template <class Bits>
[[gnu::always_inline]] inline Bits load_element(const std::byte* weights, std::uint32_t at) noexcept {
  return load_le<Bits>(weights + sizeof(Bits) * at);
}

// Patterns in the order of their values, as unsigned numbers: negative floats count downwards.
template <class Bits>
[[gnu::always_inline]] inline Bits ordered(Bits pattern, bool is_float) noexcept {
  constexpr auto kTop = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  if (!is_float) return pattern;
  return static_cast<Bits>((pattern & kTop) != 0 ? ~pattern : pattern | kTop);
}

template <class Bits>
[[gnu::always_inline]] inline Bits from_ordered(Bits number, bool is_float) noexcept {
  constexpr auto kTop = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  if (!is_float) return number;
  return static_cast<Bits>((number & kTop) != 0 ? number & ~kTop : ~number);
}

// The class of a weight. REQUIRES: a type with an exponent.
[[gnu::always_inline]] inline unsigned class_of(std::uint32_t pattern, const Element& element,
                                                unsigned top) noexcept {
  const unsigned exponent = pattern >> element.exponent_shift & element.exponent_mask;
  const unsigned below = top > exponent ? top - exponent : 0;
  return below < kClasses ? below : kClasses - 1;
}

}  // namespace deltawire::patch
