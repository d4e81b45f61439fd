// Golomb-Rice codes: the rule for their parameter, against logarithms; the codes, bit by bit.
#include "codecs/kernels/rice.h"

#include <cmath>
#include <utility>

#include <gtest/gtest.h>

namespace deltawire::rice_test {
namespace {

constexpr std::uint64_t kLargest = 0xFFFFFFFF;

unsigned exact_parameter(std::uint64_t gaps, std::uint64_t span) {
  const double golden = (std::sqrt(5.0) + 1) / 2;
  const double p = static_cast<double>(gaps) / static_cast<double>(span);
  const double exact = 1 + std::floor(std::log2(std::log(golden - 1) / std::log1p(-p)));
  return static_cast<unsigned>(std::fmin(std::fmax(exact, 0), 24));
}

TEST(Rice, ParameterIsGolombsRule) {
  const std::pair<std::uint64_t, unsigned> published[] = {{4, 1},   {10, 3},   {20, 4},
                                                          {100, 6}, {1000, 9}, {10000, 13}};
  for (const auto& [distance, expected] : published) {
    EXPECT_EQ(rice_parameter(300, 300 * distance), expected) << "p = 1 / " << distance;
  }
  EXPECT_EQ(rice_parameter(1, 1), 0U);
  EXPECT_EQ(rice_parameter(1, kLargest), 24U);
  EXPECT_EQ(rice_parameter(0, 1, 15), 15U);
  EXPECT_EQ(rice_parameter(1971, 1U << 28), 17U);  // p is the bound of the table itself, 31536 / 2^32
  for (const std::uint64_t gaps : {1U, 15U, 999U, 16383U}) {
    for (std::uint64_t span = gaps + 1; span < 20 * kLargest / 21; span += span / 20 + 1) {
      const unsigned expected = exact_parameter(gaps, span);
      if (gaps * 1000000 < span) {  // the table's bounds are rounded down there
        ASSERT_LE(rice_parameter(gaps, span), expected) << gaps << " in " << span;
        ASSERT_GE(rice_parameter(gaps, span) + 1, expected) << gaps << " in " << span;
      } else {
        ASSERT_EQ(rice_parameter(gaps, span), expected) << gaps << " in " << span;
      }
    }
  }
  for (const std::uint64_t span : {7U, 320U, 16960U, 40960U}) {
    for (std::uint64_t gaps = 1; gaps < span; ++gaps) {
      ASSERT_EQ(rice_parameter(gaps, span), exact_parameter(gaps, span)) << gaps << " in " << span;
    }
  }
}

TEST(Rice, EveryBoundIsExact) {
  const long double golden = (std::sqrt(5.0L) + 1) / 2;
  for (unsigned j = 0; j < kMaxRiceParameter; ++j) {
    const long double share = 1 - std::pow(golden - 1, std::ldexp(1.0L, -static_cast<int>(j)));
    const auto bound = static_cast<std::uint64_t>(std::floor(std::ldexp(share, 32)));
    EXPECT_GT(rice_parameter(bound - 1, kLargest), j);
    EXPECT_LE(rice_parameter(bound, kLargest), j);
  }
}

TEST(Rice, CodesAreOnesAZeroAndLowBitsOrRaw) {
  const auto bits = [](std::uint32_t gap, unsigned parameter, unsigned raw) {
    const RiceBits code = rice_bits_of(gap, parameter, raw);
    return std::pair(code.value, code.bits);
  };
  EXPECT_EQ(bits(0, 0, 16), std::pair(std::uint64_t{0}, 1U));
  EXPECT_EQ(bits(3, 0, 16), std::pair(std::uint64_t{0b0111}, 4U));
  EXPECT_EQ(bits(13, 2, 16), std::pair(std::uint64_t{0b01'0111}, 6U));
  EXPECT_EQ(bits(23, 0, 16), std::pair(std::uint64_t{0x7FFFFF}, 24U));
  EXPECT_EQ(bits(24, 0, 16), std::pair(std::uint64_t{24} << 24 | 0xFFFFFF, 40U));
  EXPECT_EQ(bits(0xFFFFFFFF, 24, 32), std::pair(std::uint64_t{0xFFFFFFFF} << 24 | 0xFFFFFF, 56U));
}

}  // namespace
}  // namespace deltawire::rice_test
