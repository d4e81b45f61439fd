#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/values.h"

namespace deltawire {
namespace {

TEST(Zeros, OfEitherSignAndNothingElse) {
  std::vector<float> values(3000, -0.0F);
  const auto all = [&values] { return all_zeros(std::span<const float>(values)); };
  EXPECT_TRUE(all());
  for (const std::size_t place : {0U, 1023U, 1024U, 2999U}) {
    values[place] = std::numeric_limits<float>::denorm_min();
    EXPECT_FALSE(all()) << place;
    values[place] = 0.0F;
  }
  EXPECT_TRUE(all_zeros(std::span<const float>()));
}

TEST(Zeros, OfSixteenBits) {
  std::vector<std::uint16_t> bits(5, 0x8000);
  EXPECT_TRUE(all_zeros(std::span<const std::uint16_t>(bits)));
  bits.back() = 1;
  EXPECT_FALSE(all_zeros(std::span<const std::uint16_t>(bits)));
}

}  // namespace
}  // namespace deltawire
