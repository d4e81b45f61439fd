#include "base/float16.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_environment.h"
#include "deltawire/tensor.h"

namespace deltawire {
namespace {

float widened(std::uint32_t half, DType dtype) {
  const auto bits = static_cast<std::uint16_t>(half);
  float value = 0;
  widen(&bits, dtype, 1, &value);
  return value;
}

std::uint32_t narrowed(float value, DType dtype, bool fits = true) {
  const FloatEnvironment environment;
  std::uint16_t half = 0;
  EXPECT_EQ(narrow(&value, 1, dtype, &half), fits ? 1U : 0U) << value;
  return half;
}

struct Form {
  DType dtype;
  std::uint32_t infinity;
  int mantissa_bits;
  int least_exponent;  // the smallest subnormal is 2 to this
};

class Float16 : public ::testing::TestWithParam<Form> {};

TEST_P(Float16, EveryNumberIsWidenedExactlyAndComesBack) {
  const Form form = GetParam();
  for (std::uint32_t half = 0; half <= form.infinity; ++half) {
    const std::uint32_t exponent = half >> form.mantissa_bits;
    const std::uint32_t mantissa = half & ((1U << form.mantissa_bits) - 1);
    const std::uint32_t whole = exponent == 0 ? mantissa : mantissa | 1U << form.mantissa_bits;
    const int shift = form.least_exponent + static_cast<int>(exponent == 0 ? 0 : exponent - 1);
    const double value = half == form.infinity ? HUGE_VAL : std::ldexp(whole, shift);
    for (const std::uint32_t sign : {0U, 0x8000U}) {
      const float wide = widened(half | sign, form.dtype);
      ASSERT_EQ(static_cast<double>(wide), sign == 0 ? value : -value) << half;
      ASSERT_EQ(narrowed(wide, form.dtype), half | sign);
    }
  }
}

TEST_P(Float16, BetweenTwoNumbersTheNearerWinsAndAtATieTheEven) {
  const Form form = GetParam();
  for (std::uint32_t half = 0; half + 1 < form.infinity; ++half) {
    const float below = widened(half, form.dtype);
    const auto middle = static_cast<float>((static_cast<double>(below) + widened(half + 1, form.dtype)) / 2);
    if (middle == below) continue;  // bf16's subnormals are as fine as float32's at their last step
    const std::uint32_t even = half % 2 == 0 ? half : half + 1;
    ASSERT_EQ(narrowed(middle, form.dtype), even) << half;
    ASSERT_EQ(narrowed(-middle, form.dtype), even | 0x8000);
    ASSERT_EQ(narrowed(std::nextafter(middle, 0.0F), form.dtype), half);
    ASSERT_EQ(narrowed(std::nextafter(middle, HUGE_VALF), form.dtype), half + 1);
  }
}

TEST_P(Float16, ValuesBeyondTheLargestAreReported) {
  const Form form = GetParam();
  const double largest = widened(form.infinity - 1, form.dtype);
  const double step = largest - widened(form.infinity - 2, form.dtype);
  const auto limit = static_cast<float>(largest + step / 2);
  EXPECT_EQ(narrowed(std::nextafter(limit, 0.0F), form.dtype), form.infinity - 1);
  std::vector<float> values(10000, -std::nextafter(limit, 0.0F));
  values[17] = HUGE_VALF;
  values[18] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(first_beyond(values, form.dtype), 10000u);
  values[9001] = -limit;
  values[9000] = limit;
  EXPECT_EQ(first_beyond(values, form.dtype), 9000u);
  EXPECT_EQ(first_beyond(values, DType::kF32), 10000u);
  narrowed(limit, form.dtype, false);
  narrowed(-std::numeric_limits<float>::max(), form.dtype, false);
  const std::vector<float> several = {1, HUGE_VALF, 2, limit, limit};
  std::vector<std::uint16_t> halves(5);
  EXPECT_EQ(narrow(several.data(), 5, form.dtype, halves.data()), 3U);
}

TEST_P(Float16, NanStaysNan) {
  const Form form = GetParam();
  for (const std::uint32_t bits : {0x7FC00000U, 0x7F800001U, 0xFFFFFFFFU}) {
    const std::uint32_t half = narrowed(std::bit_cast<float>(bits), form.dtype);
    EXPECT_GT(half & 0x7FFF, form.infinity);
    EXPECT_EQ(half >> 15, bits >> 31);
    EXPECT_TRUE(std::isnan(widened(half, form.dtype)));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Float16,
                         ::testing::Values(Form{DType::kBF16, 0x7F80, 7, -133},
                                           Form{DType::kF16, 0x7C00, 10, -24}));

}  // namespace
}  // namespace deltawire
