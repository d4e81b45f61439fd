#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"

namespace deltawire::bf16_test {
namespace {

using namespace testing;

// 8 bits of mantissa, rounded to nearest; the last term is half a step where bf16 is subnormal.
const testing::Expects kExpects{{
    .codec = "bf16",
    .error_bound = [](const testing::EncodedValue& value) { return std::fabs(value.x()) / 256 + 0x1p-134; },
}};

std::uint32_t coded(std::uint32_t bits) {
  const auto codec = codec_of("bf16");
  const auto part = testing::encode(*codec, std::vector<float>{std::bit_cast<float>(bits)});
  EXPECT_EQ(part->payload.size(), 2U);
  return bits_of(testing::decode(*codec, part->view(), 1)->at(0));
}

TEST(Bf16, BytesAreTheUpperHalfLittleEndian) {
  const auto part = testing::encode(*codec_of("bf16"), std::vector<float>{-2.5F});
  EXPECT_EQ(testing::to_ints(part->payload), (std::vector<int>{0x20, 0xC0}));
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(coded(0x3F808000), 0x3F800000U);  // tie, even below
  EXPECT_EQ(coded(0x3F818000), 0x3F820000U);  // tie, even above
  EXPECT_EQ(coded(0x3F808001), 0x3F810000U);
  EXPECT_EQ(coded(0x3F807FFF), 0x3F800000U);
  EXPECT_EQ(coded(0xBFFFFFFF), 0xC0000000U);  // carry into the exponent
}

TEST(Bf16, SpecialValues) {
  EXPECT_EQ(coded(0x7F800000), 0x7F800000U);
  EXPECT_EQ(coded(0xFF800000), 0xFF800000U);
  EXPECT_EQ(coded(0x7F800001), 0x7FC00000U);  // a NaN whose upper half alone would be Inf
  EXPECT_EQ(coded(0xFFFFFFFF), 0xFFC00000U);  // a NaN that a carry would turn into 0
  EXPECT_EQ(coded(0x80000000), 0x80000000U);
  EXPECT_EQ(coded(0x7F7F7FFF), 0x7F7F0000U);
  EXPECT_EQ(coded(0x7F7F8000), 0x7F800000U);  // finite, rounds to Inf
  EXPECT_EQ(coded(0x00018000), 0x00020000U);  // subnormal
  EXPECT_EQ(coded(0x00008000), 0x00000000U);
}

TEST(Bf16, ResidualKeepsWhatRoundingLeft) {
  const std::vector<float> values = {1.001F, 3.4e38F, std::numeric_limits<float>::quiet_NaN(), 0x1p-140F};
  std::vector<float> residual = {0.0001F, 0, 1, 0x1p-149F};
  const float x = values[0] + residual[0];
  const auto codec = codec_of("bf16");
  const auto part = testing::encode(*codec, values, residual);
  const auto back = *testing::decode(*codec, part->view(), 4);
  EXPECT_EQ(residual[0], x - back[0]);
  EXPECT_EQ(back[1], std::numeric_limits<float>::infinity());
  EXPECT_EQ(residual[1], 0);
  EXPECT_EQ(residual[2], 0);
  EXPECT_EQ(bits_of(residual[3] + back[3]), bits_of(0x1p-140F + 0x1p-149F));
}

}  // namespace
}  // namespace deltawire::bf16_test
