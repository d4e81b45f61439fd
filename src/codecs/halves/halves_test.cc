// The 16-bit formats: their bytes, ties and limits, and what a decoder must refuse.
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"

namespace deltawire::halves_test {
namespace {

using namespace testing;

// 8 bits of mantissa, rounded to nearest; the last term is half a step where bf16 is subnormal.
const Expects kBf16Expects{{
    .codec = "bf16",
    .error_bound = [](const EncodedValue& value) { return std::fabs(value.x()) / 256 + 0x1p-134; },
}};

std::uint32_t rounded(std::uint32_t bits) {
  return bits_of(round_trip("bf16", {std::bit_cast<float>(bits)})[0]);
}

TEST(Bf16, BytesAreTheUpperHalfLittleEndian) {
  EXPECT_EQ(bytes_of("bf16", {-2.5F}), (Ints{0x20, 0xC0}));
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(rounded(0x3F808000), 0x3F800000U);  // tie, even below
  EXPECT_EQ(rounded(0x3F818000), 0x3F820000U);  // tie, even above
  EXPECT_EQ(rounded(0x3F808001), 0x3F810000U);
  EXPECT_EQ(rounded(0x3F807FFF), 0x3F800000U);
  EXPECT_EQ(rounded(0xBFFFFFFF), 0xC0000000U);  // carry into the exponent
}

TEST(Bf16, SpecialValues) {
  EXPECT_EQ(rounded(0x7F800000), 0x7F800000U);
  EXPECT_EQ(rounded(0xFF800000), 0xFF800000U);
  EXPECT_EQ(rounded(0x7F800001), 0x7FC00000U);  // a NaN whose upper half alone would be Inf
  EXPECT_EQ(rounded(0xFFFFFFFF), 0xFFC00000U);  // a NaN that a carry would turn into 0
  EXPECT_EQ(rounded(0x80000000), 0x80000000U);
  EXPECT_EQ(rounded(0x7F7F7FFF), 0x7F7F0000U);
  EXPECT_EQ(rounded(0x7F7F8000), 0x7F800000U);  // finite, rounds to Inf
  EXPECT_EQ(rounded(0x00018000), 0x00020000U);  // subnormal
  EXPECT_EQ(rounded(0x00008000), 0x00000000U);
}

TEST(Bf16, ResidualKeepsWhatRoundingLeft) {
  const Floats values = {1.001F, 3.4e38F, kNan, 0x1p-140F};
  Floats residual = {0.0001F, 0, 1, 0x1p-149F};
  const float x = values[0] + residual[0];
  const auto codec = codec_of("bf16");
  const auto part = encode(*codec, values, residual);
  const auto back = *decode(*codec, part->view(), 4);
  EXPECT_EQ(residual[0], x - back[0]);
  EXPECT_EQ(back[1], kInf);
  EXPECT_EQ(residual[1], 0);
  EXPECT_EQ(residual[2], 0);
  EXPECT_EQ(bits_of(residual[3] + back[3]), bits_of(0x1p-140F + 0x1p-149F));
}

// 11 bits of mantissa, rounded to nearest; the last term is half a step of the subnormals.
const Expects kFp16Expects{{
    .codec = "fp16",
    .error_bound = [](const EncodedValue& value) { return std::fabs(value.x()) / 2048 + 0x1p-25; },
    .tiny_signs = {0, 0, 0, 0},
}};

ErrorCode verdict(const Ints& bytes) {
  return verdict_of("fp16", one_chunk(bytes, 0), 1);
}

TEST(Fp16Bytes, AreLittleEndianBinary16) {
  EXPECT_EQ(bytes_of("fp16", {1.0F, -2.5F, 0.0F}), (Ints{0, 0x3C, 0, 0xC1, 0, 0}));
}

TEST(Fp16Bytes, TiesGoToEven) {
  EXPECT_EQ(bytes_of("fp16", {1 + 0x1p-11F, 1 + 0x3p-11F}), (Ints{0, 0x3C, 2, 0x3C}));
}

TEST(Fp16Bytes, LargeValuesAreTheLargest) {
  EXPECT_EQ(bytes_of("fp16", {65504.0F, 65520.0F, -1e30F}), (Ints{0xFF, 0x7B, 0xFF, 0x7B, 0xFF, 0xFB}));
}

// From the definition: steps of 2^-24 up to 2^-14, below which half a step is a tie that goes to 0.
TEST(Fp16Bytes, SubnormalsAndZerosKeepTheirSigns) {
  const Floats values = {0x1p-24F, 0x1p-25F, 0x1.000002p-25F, -0x3p-25F, -0x1p-149F, -0.0F, 0x1.ff8p-15F};
  EXPECT_EQ(bytes_of("fp16", values), (Ints{1, 0, 0, 0, 1, 0, 2, 0x80, 0, 0x80, 0, 0x80, 0xFF, 0x03}));
  EXPECT_EQ(bytes_of("fp16", {0x1p-14F}), (Ints{0, 0x04}));
}

TEST(Fp16Values, AreTheDefinitions) {
  const auto codec = codec_of("fp16");
  for (int bits = 0; bits < 0x7C00; bits += 7) {
    const int exponent = bits >> 10;
    const int mantissa = bits & 0x3FF;
    const double value = exponent == 0 ? mantissa * 0x1p-24 : std::ldexp(1024 + mantissa, exponent - 25);
    const Encoded part = one_chunk({bits & 0xFF, bits >> 8, bits & 0xFF, bits >> 8 | 0x80}, 0);
    const Floats back = *decode(*codec, part.view(), 2);
    ASSERT_EQ(static_cast<double>(back[0]), value) << bits;
    ASSERT_EQ(static_cast<double>(back[1]), -value) << bits;
    ASSERT_EQ(bytes_of("fp16", back), to_ints(part.payload)) << bits;
  }
}

// What is too small to be sent adds up until it is.
TEST(Fp16Residual, SendsSmallGradientsLater) {
  const auto codec = codec_of("fp16");
  Floats residual = {0};
  float sum = 0;
  for (int step = 0; step < 64; ++step) {
    const Encoded part = *encode(*codec, Floats{0x1p-27F}, residual);
    sum += decode(*codec, part.view(), 1)->at(0);
  }
  EXPECT_EQ(sum + residual[0], 0x1p-21F);
  EXPECT_NE(sum, 0);
}

TEST(Fp16Residual, KeepsWhatRoundingLeft) {
  Floats residual = {0x1p-12F, 0};
  const auto codec = codec_of("fp16");
  const Encoded part = *encode(*codec, Floats{1.0F, 70000.0F}, residual);
  EXPECT_EQ(*decode(*codec, part.view(), 2), (Floats{1.0F, 65504.0F}));
  EXPECT_EQ(residual, (Floats{0x1p-12F, 4496.0F}));
}

TEST(Fp16Refusals, ValuesAndLengths) {
  EXPECT_EQ(verdict({0xFF, 0x7B}), kAccepted);
  for (const int high : {0x7C, 0x7E, 0xFC, 0xFF}) EXPECT_EQ(verdict({0, high}), ErrorCode::kCorrupt) << high;
  EXPECT_EQ(verdict({0}), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0, 0, 0}), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deltawire::halves_test
