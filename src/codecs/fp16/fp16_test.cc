// fp16: its bytes, ties and limits, and what a decoder must refuse.
#include <cmath>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"

namespace deltawire::fp16_test {
namespace {

using namespace testing;

// 11 bits of mantissa, rounded to nearest; the last term is half a step of the subnormals.
const testing::Expects kExpects{{
    .codec = "fp16",
    .error_bound = [](const testing::EncodedValue& value) { return std::fabs(value.x()) / 2048 + 0x1p-25; },
    .tiny_signs = {0, 0, 0, 0},
}};

Ints bytes_of(const Floats& values) {
  return testing::to_ints(testing::encode(*codec_of("fp16"), values)->payload);
}

ErrorCode verdict(const Ints& bytes) {
  return testing::verdict_of("fp16", one_chunk(bytes, 0), 1);
}

TEST(Fp16Bytes, AreLittleEndianBinary16) {
  EXPECT_EQ(bytes_of({1.0F, -2.5F, 0.0F}), (Ints{0, 0x3C, 0, 0xC1, 0, 0}));
}

TEST(Fp16Bytes, TiesGoToEven) {
  EXPECT_EQ(bytes_of({1 + 0x1p-11F, 1 + 0x3p-11F}), (Ints{0, 0x3C, 2, 0x3C}));
}

TEST(Fp16Bytes, LargeValuesAreTheLargest) {
  EXPECT_EQ(bytes_of({65504.0F, 65520.0F, -1e30F}), (Ints{0xFF, 0x7B, 0xFF, 0x7B, 0xFF, 0xFB}));
}

// From the definition: steps of 2^-24 up to 2^-14, below which half a step is a tie that goes to 0.
TEST(Fp16Bytes, SubnormalsAndZerosKeepTheirSigns) {
  const Floats values = {0x1p-24F, 0x1p-25F, 0x1.000002p-25F, -0x3p-25F, -0x1p-149F, -0.0F, 0x1.ff8p-15F};
  EXPECT_EQ(bytes_of(values), (Ints{1, 0, 0, 0, 1, 0, 2, 0x80, 0, 0x80, 0, 0x80, 0xFF, 0x03}));
  EXPECT_EQ(bytes_of({0x1p-14F}), (Ints{0, 0x04}));
}

TEST(Fp16Values, AreTheDefinitions) {
  const auto codec = codec_of("fp16");
  for (int bits = 0; bits < 0x7C00; bits += 7) {
    const int exponent = bits >> 10;
    const int mantissa = bits & 0x3FF;
    const double value = exponent == 0 ? mantissa * 0x1p-24 : std::ldexp(1024 + mantissa, exponent - 25);
    const Encoded part = one_chunk({bits & 0xFF, bits >> 8, bits & 0xFF, bits >> 8 | 0x80}, 0);
    const Floats back = *testing::decode(*codec, part.view(), 2);
    ASSERT_EQ(static_cast<double>(back[0]), value) << bits;
    ASSERT_EQ(static_cast<double>(back[1]), -value) << bits;
    ASSERT_EQ(bytes_of(back), testing::to_ints(part.payload)) << bits;
  }
}

// What is too small to be sent adds up until it is.
TEST(Fp16Residual, SendsSmallGradientsLater) {
  const auto codec = codec_of("fp16");
  Floats residual = {0};
  float sum = 0;
  for (int step = 0; step < 64; ++step) {
    const Encoded part = *testing::encode(*codec, Floats{0x1p-27F}, residual);
    sum += testing::decode(*codec, part.view(), 1)->at(0);
  }
  EXPECT_EQ(sum + residual[0], 0x1p-21F);
  EXPECT_NE(sum, 0);
}

TEST(Fp16Residual, KeepsWhatRoundingLeft) {
  Floats residual = {0x1p-12F, 0};
  const auto codec = codec_of("fp16");
  const Encoded part = *testing::encode(*codec, Floats{1.0F, 70000.0F}, residual);
  EXPECT_EQ(*testing::decode(*codec, part.view(), 2), (Floats{1.0F, 65504.0F}));
  EXPECT_EQ(residual, (Floats{0x1p-12F, 4496.0F}));
}

TEST(Fp16Refusals, ValuesAndLengths) {
  EXPECT_EQ(verdict({0xFF, 0x7B}), kAccepted);
  for (const int high : {0x7C, 0x7E, 0xFC, 0xFF}) EXPECT_EQ(verdict({0, high}), ErrorCode::kCorrupt) << high;
  EXPECT_EQ(verdict({0}), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0, 0, 0}), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deltawire::fp16_test
