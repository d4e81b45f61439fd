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

// Arrays are converted in vectors where the CPU has them, and single values are not.
TEST_P(Float16, ManyAreWidenedAsEachByItself) {
  const DType dtype = GetParam().dtype;
  std::vector<std::uint16_t> halves(65536 + 3);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(halves.size());
  const std::uint64_t before = FloatEnvironment::read_control();
  FloatEnvironment::write_control(before | FloatEnvironment::kFlushToZero);
  widen(halves.data(), dtype, halves.size(), wide.data());
  FloatEnvironment::write_control(before);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const std::uint32_t expected = dtype == DType::kBF16 ? bits_of_bf16(halves[i]) : bits_of_f16(halves[i]);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), expected) << i;
  }
}

TEST_P(Float16, SumsAreThoseOfTheWidened) {
  const DType dtype = GetParam().dtype;
  std::vector<std::uint16_t> halves(65536 + 3);
  std::vector<float> sums(halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<std::uint16_t>(i);
    sums[i] = 0.375F * static_cast<float>(i);
  }
  std::vector<float> found(halves.size());
  const FloatEnvironment environment;
  widen_and_add(halves.data(), dtype, halves.size(), sums.data(), found.data());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float sum = widened(halves[i], dtype) + sums[i];
    ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(sum)) << i;
  }
}

// Every sign and exponent with the mantissas around the steps and ties of both forms.
std::vector<float> values_around_ties() {
  std::vector<float> values;
  for (std::uint32_t top = 0; top < 1U << 9; ++top) {
    for (const std::uint32_t kept : {0U, 1U, 2U, 3U, 0x3FFU, 0x7FU, 0x155U}) {
      for (const std::uint32_t shift : {12U, 13U, 15U, 16U}) {
        for (const std::uint32_t step : {0xFFFFFFFFU, 0U, 1U}) {
          values.push_back(std::bit_cast<float>(top << 23 | (((kept << shift) + step) & 0x7FFFFF)));
        }
      }
    }
  }
  return values;
}

TEST_P(Float16, ManyAreNarrowedAsEachByItself) {
  const DType dtype = GetParam().dtype;
  const std::vector<float> values = values_around_ties();
  const FloatEnvironment environment;
  for (std::size_t begin = 0; begin < 17; ++begin) {
    const std::size_t count = values.size() - begin;
    std::vector<std::uint16_t> halves(count);
    narrow(values.data() + begin, count, dtype, halves.data());
    for (std::size_t i = 0; i < count; ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(values[begin + i]);
      ASSERT_EQ(halves[i], dtype == DType::kBF16 ? bf16_of(bits) : f16_of(bits)) << std::hex << bits;
    }
  }
}

TEST_P(Float16, TheFirstThatOverflowsIsFoundAnywhere) {
  const Form form = GetParam();
  const float limit = std::bit_cast<float>(form.dtype == DType::kBF16 ? 0x7F7F8000U : 0x477FF000U);
  const FloatEnvironment environment;
  for (const std::size_t at : {0U, 7U, 8U, 15U, 16U, 4095U, 4096U, 8191U, 8192U, 8198U}) {
    std::vector<float> values(8199, std::nextafter(limit, 0.0F));
    std::vector<std::uint16_t> halves(values.size());
    values[at / 2] = -HUGE_VALF;  // which overflows in neither
    values[at] = -limit;
    values.back() = limit;
    EXPECT_EQ(narrow(values.data(), values.size(), form.dtype, halves.data()), at);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Float16,
                         ::testing::Values(Form{DType::kBF16, 0x7F80, 7, -133},
                                           Form{DType::kF16, 0x7C00, 10, -24}));

}  // namespace
}  // namespace deltawire
