// The logarithm to base 2 of a mantissa, as a polynomial: for guesses alone, as its last bits are nobody's.
#pragma once

#include <cstdint>

namespace deltawire {

// log2(kLogarithmMiddle + t) for |t| <= 1/2, from the highest power of t on; off by less than 2.5e-6 and the
// roundings. Interpolated at Chebyshev's nodes.
inline constexpr float kLogarithmMiddle = 1.5F;
inline constexpr unsigned kLogarithmTerms = 7;
inline constexpr float kLogarithm[kLogarithmTerms] = {-0.024568535F, 0.043907478F, -0.070796862F, 0.14172474F,
                                                      -0.32061303F,  0.96182084F,  0.58496249F};

}  // namespace deltawire
