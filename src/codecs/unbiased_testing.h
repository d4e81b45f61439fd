// Whether a codec that rounds by chance is right on average.
#pragma once

#include <cstdint>
#include <span>

#include "deltawire/codec.h"

namespace deltawire::testing {

inline constexpr std::uint64_t kUnbiasedDraws = 10000;

// Codes `values` kUnbiasedDraws times, each time with another stream, and compares the means of what is
// decoded with what went in: those of every element, and that of the sum of all elements. What is decoded of
// element i takes values at most ranges[i] apart. Then the mean of n independent draws is farther than
// ranges[i] sqrt(ln(2/p) / 2n) from its expectation with a chance of at most p (W. Hoeffding, "Probability
// inequalities for sums of bounded random variables", 1963, theorem 2), and the sum of all elements likewise
// with the root of the sum of squared ranges. p is 10^-9 divided by the number of means, so that a codec
// without bias fails with a chance of 10^-9; as the streams are 0, 1, 2, ..., it fails always or never.
// `rounded` is what rounding to float32 may add to a bias, as a share of the range.
void expect_unbiased(const Codec& codec, std::span<const float> values, std::span<const double> ranges,
                     double rounded = 0);

}  // namespace deltawire::testing
