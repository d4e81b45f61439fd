#include <bit>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"

namespace deltawire::fp32_test {
namespace {

using namespace testing;

const testing::Expects kExpects{{
    .codec = "fp32",
    .error_bound = [](const testing::EncodedValue&) { return 0.0; },
}};

TEST(Fp32, BytesAreLittleEndianBits) {
  const std::vector<float> values = {1.0F, -2.5F};
  const auto part = testing::encode(*codec_of("fp32"), values);
  ASSERT_TRUE(part);
  EXPECT_EQ(to_ints(part->payload), (std::vector<int>{0, 0, 128, 63, 0, 0, 32, 192}));
  EXPECT_EQ(part->scalar, 0U);
}

TEST(Fp32, CarriesEveryBitPattern) {
  std::vector<float> values;
  for (const std::uint32_t bits :
       {0x7FA00001U, 0xFFC12345U, 0x7F800000U, 0xFF800000U, 0x80000000U, 1U, 0x807FFFFFU}) {
    values.push_back(std::bit_cast<float>(bits));
  }
  const auto codec = codec_of("fp32");
  const auto part = testing::encode(*codec, values);
  const auto back = testing::decode(*codec, part->view(), values.size());
  ASSERT_TRUE(back);
  EXPECT_TRUE(testing::same_bits(*back, values));
}

TEST(Fp32, ResidualIsSentWholeAndCleared) {
  const std::vector<float> values = {1, 2, 3};
  std::vector<float> residual = {0.5F, -0.25F, 1e-45F};
  const auto codec = codec_of("fp32");
  const auto part = testing::encode(*codec, values, residual);
  EXPECT_EQ(*testing::decode(*codec, part->view(), 3), (std::vector<float>{1.5F, 1.75F, 3}));
  EXPECT_EQ(residual, (std::vector<float>{0, 0, 0}));
}

TEST(Fp32, ScaleThenAddAreTwoRoundings) {
  const float value = 1 + 0x1p-23F;
  const auto codec = codec_of("fp32");
  const auto part = testing::encode(*codec, std::vector<float>{value});
  const auto sum = testing::decode(*codec, part->view(), 1, Into::kAccumulate, value, -1);
  // value * value is 1 + 2^-22 + 2^-46; a fused multiply-add would keep the last term.
  EXPECT_EQ(sum->at(0), 0x1p-22F);
  EXPECT_EQ(testing::decode(*codec, part->view(), 1, Into::kOverwrite, 0.5F)->at(0), value / 2);
}

TEST(Fp32, LengthChunkEndsAndScalarAreChecked) {
  const auto codec = codec_of("fp32");
  const auto part = *testing::encode(*codec, std::vector<float>(70000, 1.0F));
  ASSERT_EQ(part.chunk_ends, (std::vector<std::uint32_t>{262144, 280000}));
  const auto code = [&](const PartView& in) { return testing::decode(*codec, in, 70000).error().code; };
  auto shifted = part;
  shifted.chunk_ends[0] = 262140;
  EXPECT_EQ(code(shifted.view()), ErrorCode::kTruncated);
  shifted.chunk_ends[0] = 262148;
  EXPECT_EQ(code(shifted.view()), ErrorCode::kCorrupt);
  auto scalar = part;
  scalar.scalar = 1;
  EXPECT_EQ(code(scalar.view()), ErrorCode::kCorrupt);
  EXPECT_EQ(code({Bytes(part.payload).first(279999), part.chunk_ends, 0}), ErrorCode::kTruncated);
  auto longer = part;
  longer.payload.push_back({});
  EXPECT_EQ(code(longer.view()), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deltawire::fp32_test
