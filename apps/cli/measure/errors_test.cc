#include "cli/measure/errors.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace deltawire::cli {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

ErrorSums sums_of(const std::vector<float>& decoded, const std::vector<float>& input) {
  ErrorSums sums;
  sums.add(decoded, input);
  return sums;
}

TEST(ErrorSums, AreThoseOfTheDefinitions) {
  // By hand: errors 1, 0, -3, 0; sum of |x| 1 + 2 + 3 + 4.
  const ErrorSums sums = sums_of({2, -2, 0, 4}, {1, -2, 3, 4});
  EXPECT_DOUBLE_EQ(sums.relative_l2(), std::sqrt(10.0 / 30));
  EXPECT_DOUBLE_EQ(sums.cosine(), 22 / std::sqrt(30.0 * 24));
  EXPECT_DOUBLE_EQ(sums.max_error(), 3);
  EXPECT_DOUBLE_EQ(sums.bias(), -2.0 / 10);
  EXPECT_DOUBLE_EQ(sums.gain(), 22.0 / 30);
  EXPECT_DOUBLE_EQ(sums.input_norm(), std::sqrt(30.0));
}

TEST(ErrorSums, OfWhatCameBackWholeAreNothing) {
  const ErrorSums sums = sums_of({1, -2, 3}, {1, -2, 3});
  EXPECT_EQ(sums.relative_l2(), 0);
  EXPECT_DOUBLE_EQ(sums.cosine(), 1);
  EXPECT_EQ(sums.bias(), 0);
  EXPECT_DOUBLE_EQ(sums.gain(), 1);
}

TEST(ErrorSums, OfZeros) {
  const ErrorSums whole = sums_of({0, 0}, {0, 0});
  EXPECT_EQ(whole.relative_l2(), 0);
  EXPECT_EQ(whole.cosine(), 1);
  EXPECT_EQ(whole.bias(), 0);
  EXPECT_EQ(whole.gain(), 1);
  const ErrorSums wrong = sums_of({0, -1}, {0, 0});
  EXPECT_EQ(wrong.relative_l2(), kInf);
  EXPECT_EQ(wrong.cosine(), 0);
  EXPECT_EQ(wrong.bias(), -kInf);
  EXPECT_EQ(sums_of({0, 0}, {0, 1}).cosine(), 0);
}

TEST(ErrorSums, LeaveOutWhatWasNotFinite) {
  const ErrorSums sums = sums_of({5, kInf, 1}, {kNaN, kInf, 2});
  EXPECT_DOUBLE_EQ(sums.relative_l2(), 0.5);
  EXPECT_DOUBLE_EQ(sums.bias(), -0.5);
  for (const float lost : {kNaN, kInf, -kInf}) {
    const ErrorSums infinite = sums_of({1, lost}, {1, 2});
    EXPECT_EQ(infinite.relative_l2(), kInf);
    EXPECT_EQ(infinite.max_error(), kInf);
  }
}

// Two streams of a method that sends a value doubled or not at all: no bias, though each has one.
TEST(ErrorSums, OfStreamsAreTheirMean) {
  ErrorSums mean;
  mean.add(sums_of({4, 0}, {2, 2}), 0.5);
  mean.add(sums_of({0, 0}, {2, 2}), 0.5);
  EXPECT_DOUBLE_EQ(mean.bias(), (0.0 - 4) / 2 / 4);
  EXPECT_DOUBLE_EQ(mean.relative_l2(), std::sqrt((8.0 + 8) / 2 / 8));
  EXPECT_DOUBLE_EQ(mean.gain(), 0.5);
  EXPECT_DOUBLE_EQ(mean.max_error(), 2);
  EXPECT_DOUBLE_EQ(mean.input_norm(), std::sqrt(8.0));
}

}  // namespace
}  // namespace deltawire::cli
