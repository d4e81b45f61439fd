// int8: its bytes, ties, limits, an independent model, and what a decoder must refuse.
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"
#include "codecs/int8/int8_ops.h"

namespace deltawire {
namespace {

using testing::bits_of;
using testing::codec_of;
using testing::Encoded;
using testing::kAccepted;
using testing::one_chunk;
using Ints = std::vector<int>;

// Half a step, the scalar, and the rounding of 127 steps to float32.
const testing::Expects kExpects{{
    .codec = "int8",
    .error_bound = [](const testing::EncodedValue& value) { return value.scalar() * (0.5 + 0x1p-17); },
}};

constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kTiniest = 0x1p-149F;

Encoded coded(const std::vector<float>& values) {
  return *testing::encode(*codec_of("int8"), values);
}

TEST(Int8, BytesAreTwosComplementAndTiesGoToEven) {
  const Encoded part = coded({127, -127, 0.5F, 1.5F, -2.5F, -3.5F, 0, -0.0F, 1});
  EXPECT_EQ(part.scalar, bits_of(1));
  EXPECT_EQ(testing::to_ints(part.payload), (Ints{127, 129, 0, 2, 254, 252, 0, 0, 1}));
}

TEST(Int8, NextToATie) {
  const float above = std::nextafter(2.5F, 3.0F);
  const float below = std::nextafter(3.5F, 3.0F);
  EXPECT_EQ(testing::to_ints(coded({127, above, below, -above, -below}).payload),
            (Ints{127, 3, 3, 253, 253}));
  // 126.5 steps of 1 + 2^-23 and a little: a quotient in float32 would be the tie, and go to 126.
  const float step = std::nextafter(1.0F, 2.0F);
  const float x = std::nextafter(126.5F, 127.0F) + 0x1p-17F;
  ASSERT_EQ(x / step, 126.5F);
  ASSERT_GT(static_cast<double>(x), 126.5 * static_cast<double>(step));
  std::byte code{};
  int8::kernels_for(TargetId::kReference).encode(&x, nullptr, 1, step, &code);
  EXPECT_EQ(code, std::byte{127});
}

TEST(Int8, StepIsTheSmallestThatReachesTheLargest) {
  for (const float largest : {1.0F, 0.3F, 0.1F, 3.0e38F, 1e-38F, 190 * kTiniest, kTiniest, 127 * kTiniest}) {
    const float step = int8::reference::step_for(largest);
    EXPECT_GE(static_cast<double>(step) * 127, static_cast<double>(largest)) << largest;
    EXPECT_LT(static_cast<double>(std::nextafter(step, 0.0F)) * 127, static_cast<double>(largest)) << largest;
  }
  EXPECT_EQ(bits_of(int8::reference::step_for(0)), 0U);
  EXPECT_EQ(bits_of(int8::reference::step_for(kMax)), int8::kLargestStep);
}

TEST(Int8, LargestAndSmallestValues) {
  const auto codec = codec_of("int8");
  const Encoded large = coded({kMax, -kMax});
  EXPECT_EQ(testing::to_ints(large.payload), (Ints{127, 129}));
  const auto back = *testing::decode(*codec, large.view(), 2);
  EXPECT_TRUE(std::isfinite(back[0]));
  EXPECT_EQ(back[0], -back[1]);
  EXPECT_FALSE(std::isfinite(127 * std::nextafter(std::bit_cast<float>(int8::kLargestStep), kMax)));
  const std::vector<float> tiny = {kTiniest, -3 * kTiniest, 0};
  EXPECT_TRUE(testing::same_bits(*testing::decode(*codec, coded(tiny).view(), 3), tiny));
}

// From the definition, in exact arithmetic: the code whose multiple of the step is nearest.
int model_code(double x, double step) {
  int best = 0;
  for (int code = -127; code <= 127; ++code) {
    const double distance = std::fabs(x - code * step);
    const double shortest = std::fabs(x - best * step);
    if (distance < shortest || (distance == shortest && code % 2 == 0)) best = code;
  }
  return best;
}

TEST(Int8, CodesAndResidualsAreTheModels) {
  std::vector<float> values = testing::normal_values(3000, 3);
  for (std::size_t i = 0; i < 40; ++i) values[i] = static_cast<float>(i) * 0.125F;
  values[40] = 15.875F;  // a step of 1/8, so that the first 40 are on it
  std::vector<float> residual(values.size(), 0.0625F);
  residual[40] = 0;
  std::vector<float> before = residual;
  const auto part = *testing::encode(*codec_of("int8"), values, residual);
  ASSERT_EQ(part.scalar, bits_of(0.125F));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float x = values[i] + before[i];
    const int code = model_code(x, 0.125);
    ASSERT_EQ(static_cast<std::int8_t>(part.payload[i]), code) << i;
    ASSERT_EQ(residual[i], x - static_cast<float>(code) * 0.125F) << i;
  }
}

TEST(Int8, AnErrorLeavesTheResidual) {
  std::vector<float> residual = {1, kMax};
  const std::vector<float> values = {1, kMax};
  const auto part = testing::encode(*codec_of("int8"), values, residual);
  ASSERT_FALSE(part);
  EXPECT_EQ(part.error().code, ErrorCode::kNotFinite);
  EXPECT_NE(part.error().message.find("element 1"), std::string::npos) << part.error().message;
  EXPECT_EQ(residual, (std::vector<float>{1, kMax}));
}

TEST(Int8, AccumulatesAndScales) {
  const Encoded part = one_chunk({127, 255, 0}, bits_of(0.5F));
  const auto codec = codec_of("int8");
  EXPECT_EQ(*testing::decode(*codec, part.view(), 3, Into::kAccumulate, 2, 10),
            (std::vector<float>{137, 9, 10}));
  EXPECT_EQ(*testing::decode(*codec, part.view(), 3, Into::kOverwrite, 2, 10),
            (std::vector<float>{127, -1, 0}));
}

ErrorCode verdict(const Encoded& part, std::uint64_t count) {
  return testing::verdict_of("int8", part, count);
}

TEST(Int8Refusals, Codes) {
  EXPECT_EQ(verdict(one_chunk({127, 129}, bits_of(1)), 2), kAccepted);
  EXPECT_EQ(verdict(one_chunk({127, 128}, bits_of(1)), 2), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(one_chunk({0, 0}, 0), 2), kAccepted);
  EXPECT_EQ(verdict(one_chunk({0, 1}, 0), 2), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(one_chunk({0}, bits_of(1)), 2), ErrorCode::kTruncated);
  EXPECT_EQ(verdict(one_chunk({0, 0, 0}, bits_of(1)), 2), ErrorCode::kCorrupt);
}

TEST(Int8Refusals, Step) {
  for (const std::uint32_t bits : {1U, int8::kLargestStep}) {
    EXPECT_EQ(verdict(one_chunk({1}, bits), 1), kAccepted) << bits;
  }
  for (const std::uint32_t bits :
       {int8::kLargestStep + 1, 0x7F800000U, 0x7FC00000U, 0x80000000U, 0xBF800000U}) {
    EXPECT_EQ(verdict(one_chunk({1}, bits), 1), ErrorCode::kCorrupt) << bits;
  }
  EXPECT_EQ(verdict(Encoded{}, 0), kAccepted);
  EXPECT_EQ(verdict(Encoded{{}, {}, 1}, 0), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deltawire
