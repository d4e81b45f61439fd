// How vector kernels encode: whole steps of four vectors, and what is left by the reference.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/int8/int8_ops.h"

namespace deltawire::int8 {

inline constexpr unsigned kVectors = 4;  // of a step

// A code stands if what it leaves is at most so many steps. It is x's nearest whole number then: rounding
// takes less than 2^-17 of a step from what is left, 127 * 2^-24 in the value and 2^-25 in the difference.
inline constexpr float kSurelyNearest = 0.5F - 0x1p-15F;

template <class Lanes>
struct Coded {
  typename Lanes::Codes codes[kVectors];
  typename Lanes::Floats left[kVectors];
};

// Codes by a product with 1/step, and by quotients in float64, as the reference has them, where any of them
// might be another than the quotient's.
template <class Lanes>
[[gnu::always_inline]] inline Coded<Lanes> coded(const typename Lanes::Floats (&x)[kVectors], float step,
                                                 float inverse) noexcept {
  const typename Lanes::Floats steps = Lanes::all(step);
  typename Lanes::Floats most = Lanes::all(0);
  Coded<Lanes> coded{};
  for (unsigned k = 0; k < kVectors; ++k) {
    coded.codes[k] = Lanes::nearest(x[k], Lanes::all(inverse));
    coded.left[k] = Lanes::left_of(x[k], coded.codes[k], steps);
    most = Lanes::larger(most, coded.left[k]);
  }
  if (!Lanes::any_above(most, kSurelyNearest * step)) [[likely]]
    return coded;
  for (unsigned k = 0; k < kVectors; ++k) {
    coded.codes[k] = Lanes::nearest_quotient(x[k], step);
    coded.left[k] = Lanes::left_of(x[k], coded.codes[k], steps);
  }
  return coded;
}

// Returns how many values whole steps took.
template <class Lanes, bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline std::uint64_t encode_whole(Addends x, float step, std::byte* payload) noexcept {
  constexpr std::uint64_t kStep = kVectors * Lanes::kCount;
  const float inverse = 1.0F / step;
  std::uint64_t i = 0;
  for (; i + kStep <= x.count; i += kStep) {
    typename Lanes::Floats sums[kVectors];
    for (unsigned k = 0; k < kVectors; ++k) sums[k] = Lanes::template load<kAdds>(x, i + Lanes::kCount * k);
    const Coded<Lanes> each = coded<Lanes>(sums, step, inverse);
    Lanes::store_codes(each.codes, payload + i);
    for (unsigned k = 0; kKeeps && k < kVectors; ++k)
      Lanes::store(x.left + i + Lanes::kCount * k, each.left[k]);
  }
  return i;
}

// Kernels::encode. Lanes, a target's vectors: kCount Floats, or Codes as whole numbers of 32 bits;
// load<kAdds>(x, i), the sums from i on; all(value); nearest(x, inverse), the product to nearest, ties to
// even, and nearest_quotient(x, step); left_of(x, codes, step), two roundings; larger(most, left), of
// magnitudes; any_above(most, limit); store(to, floats) and store_codes(codes, to).
template <class Lanes>
[[gnu::always_inline]] inline void encode_by(const Addends& x, float step, std::byte* payload) noexcept {
  std::uint64_t i = 0;
  if (step >= 0x1p-126F) {  // 1/step and a product with it have all their digits
    if (x.residual == nullptr) {
      i = x.left == nullptr ? encode_whole<Lanes, false, false>(x, step, payload)
                            : encode_whole<Lanes, false, true>(x, step, payload);
    } else {
      i = x.left == nullptr ? encode_whole<Lanes, true, false>(x, step, payload)
                            : encode_whole<Lanes, true, true>(x, step, payload);
    }
  }
  kernels_for(TargetId::kReference).encode(some_of(x, i, x.count - i), step, payload + i);
}

}  // namespace deltawire::int8
