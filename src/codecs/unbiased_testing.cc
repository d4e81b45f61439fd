#include "codecs/unbiased_testing.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"

namespace deltawire::testing {

void expect_unbiased(const Codec& codec, std::span<const float> values, std::span<const double> ranges,
                     double rounded) {
  ASSERT_EQ(values.size(), ranges.size());
  std::vector<double> sums(values.size(), 0.0);
  for (std::uint64_t stream = 0; stream < kUnbiasedDraws; ++stream) {
    const auto part = encode_view(codec, {values.data(), values.size(), DType::kF32}, {}, stream);
    ASSERT_TRUE(part) << part.error().message;
    const auto back = decode(codec, part->view(), values.size());
    ASSERT_TRUE(back) << back.error().message;
    for (std::size_t i = 0; i < values.size(); ++i) sums[i] += static_cast<double>(back->at(i));
  }
  constexpr auto kDraws = static_cast<double>(kUnbiasedDraws);
  const double chance = 1e-9 / static_cast<double>(values.size() + 1);
  const double deviation = std::sqrt(std::log(2 / chance) / (2 * kDraws));
  double bias = 0;
  double squares = 0;
  double slack = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double off = sums[i] / kDraws - static_cast<double>(values[i]);
    EXPECT_LE(std::fabs(off), ranges[i] * (deviation + rounded)) << "element " << i << ", " << values[i];
    bias += off;
    squares += ranges[i] * ranges[i];
    slack += ranges[i] * rounded;
  }
  EXPECT_LE(std::fabs(bias), std::sqrt(squares) * deviation + slack) << "of all elements together";
}

}  // namespace deltawire::testing
