#include "base/checked.h"

#include <gtest/gtest.h>

#include "base/property_testing.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

TEST(Checked, AdditionUpToTheLastValue) {
  EXPECT_EQ(checked_add(0, 0), 0u);
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_add(kMax, 1), std::nullopt);
  EXPECT_EQ(checked_add(1, kMax), std::nullopt);
  EXPECT_EQ(checked_add(kMax, kMax), std::nullopt);
}

TEST(Checked, MultiplicationUpToTheLastValue) {
  EXPECT_EQ(checked_mul(kMax, 1), kMax);
  EXPECT_EQ(checked_mul(kMax, 0), 0u);
  EXPECT_EQ(checked_mul(std::uint64_t{1} << 32, (std::uint64_t{1} << 32) - 1), 0xFFFFFFFF00000000u);
  EXPECT_EQ(checked_mul(std::uint64_t{1} << 32, std::uint64_t{1} << 32), std::nullopt);
  EXPECT_EQ(checked_mul(kMax, 2), std::nullopt);
}

TEST(Checked, RangeAtItsEdges) {
  EXPECT_TRUE(range_fits(0, 0, 0));
  EXPECT_TRUE(range_fits(10, 0, 10));
  EXPECT_TRUE(range_fits(0, 10, 10));
  EXPECT_TRUE(range_fits(9, 1, 10));
  EXPECT_FALSE(range_fits(9, 2, 10));
  EXPECT_FALSE(range_fits(11, 0, 10));
}

TEST(Checked, ARangeWhoseEndWrapsDoesNotFit) {
  EXPECT_FALSE(range_fits(8, kMax - 4, 16));
  EXPECT_FALSE(range_fits(kMax, 1, 16));
  EXPECT_FALSE(range_fits(kMax, kMax, kMax));
}

TEST(Checked, CeilDivDoesNotWrap) {
  EXPECT_EQ(ceil_div(0, 5), 0u);
  EXPECT_EQ(ceil_div(10, 5), 2u);
  EXPECT_EQ(ceil_div(11, 5), 3u);
  EXPECT_EQ(ceil_div(kMax, 2), (std::uint64_t{1} << 63));
  EXPECT_EQ(ceil_div(kMax, kMax), 1u);
}

PROPERTY(CheckedProperty, AgreesWithWideArithmetic) {
  const std::uint64_t a = testing::drawn_word();
  const std::uint64_t b = testing::drawn_word();
  __extension__ using Wide = unsigned __int128;
  const auto sum = checked_add(a, b);
  HOLDS(sum.has_value() == (Wide{a} + b <= kMax));
  if (sum) HOLDS(*sum == a + b);
  const auto product = checked_mul(a, b);
  HOLDS(product.has_value() == (Wide{a} * b <= kMax));
  if (product) HOLDS(*product == a * b);
}

PROPERTY(CheckedProperty, RangeFitsMeansItsEndDoes) {
  const std::uint64_t offset = testing::drawn_word();
  const std::uint64_t length = testing::drawn_word();
  const std::uint64_t size = testing::drawn_word();
  __extension__ using Wide = unsigned __int128;
  HOLDS(range_fits(offset, length, size) == (Wide{offset} + length <= size));
}

}  // namespace
}  // namespace deltawire
