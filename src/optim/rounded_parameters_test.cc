// What the raised significance lets fall changes a parameter of 16 bits by its last place at most.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/float16.h"
#include "base/float_environment.h"
#include "base/random.h"
#include "deltawire/optimizer.h"

namespace deltawire::rounded_parameters_test {
namespace {

constexpr std::size_t kCount = 20000;
constexpr float kRate = 0.01F;

std::uint16_t rounded(float value, DType dtype) {
  const FloatEnvironment environment;
  std::uint16_t half = 0;
  (void)narrow(&value, 1, dtype, &half);
  return half;
}

float widened(std::uint16_t half, DType dtype) {
  float value = 0;
  widen(&half, dtype, 1, &value);
  return value;
}

// How many 16-bit numbers lie between two of the same sign.
int steps_between(std::uint16_t a, std::uint16_t b) {
  return std::abs(static_cast<int>(a) - static_cast<int>(b));
}

class RoundedParameters : public ::testing::TestWithParam<DType> {};

// As gcomp cuts: of a gradient the n lowest bits, rounded to nearest, where |significance| > 2^n |gradient|.
float cut(float gradient, float significance) {
  int bits = 0;
  while (bits < 23 && std::fabs(significance) > std::ldexp(std::fabs(gradient), bits + 1)) ++bits;
  const float step = std::ldexp(1.0F, std::ilogb(gradient) - 23 + bits);
  return std::nearbyint(gradient / step) * step;
}

TEST_P(RoundedParameters, AStepMovesByTheLastPlaceAtMost) {
  const DType dtype = GetParam();
  CounterRng random(5);
  int most = 0;
  std::size_t whole = 0;  // gradients of which no bit of 16 is left but the exponent
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto size = static_cast<float>(std::pow(10.0, -4 * random.next_uniform()));
    const auto drawn = static_cast<float>(random.next_uniform() + 0.5);
    const float theta = widened(rounded(0.05F * drawn, dtype), dtype);
    const float gradient = size * static_cast<float>(random.next_uniform() + 0.1);
    std::vector<float> significance{theta};
    ASSERT_TRUE(deltawire::significance(*parse_optimizer("sgd:lr=0.01"), {&theta, 1}, {}, significance));
    count_rounding_to(dtype, significance);
    const float kept = cut(gradient, significance[0]);
    if (std::ldexp(1.0F, std::ilogb(kept)) == kept) ++whole;
    most = std::max(
        most, steps_between(rounded(theta - kRate * gradient, dtype), rounded(theta - kRate * kept, dtype)));
  }
  EXPECT_EQ(most, 1) << "less: nothing is cut";
  EXPECT_GT(whole, kCount / 4);
}

INSTANTIATE_TEST_SUITE_P(Forms, RoundedParameters, ::testing::Values(DType::kBF16, DType::kF16));

TEST(RoundedFloat32, OfFloat32NothingIsHidden) {
  std::vector<float> significance{1.5F, -0.0F, 1e38F};
  count_rounding_to(DType::kF32, significance);
  EXPECT_EQ(significance, (std::vector<float>{1.5F, 0.0F, 1e38F}));
  count_rounding_to(DType::kBF16, significance);
  EXPECT_EQ(significance, (std::vector<float>{1.5F * 65536, 0.0F, std::numeric_limits<float>::infinity()}));
}

}  // namespace
}  // namespace deltawire::rounded_parameters_test
