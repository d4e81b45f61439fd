// signsgd: its bits, the scale, the contraction that error feedback lives on, and what a decoder must refuse.
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"
#include "codecs/kernels/lanes.h"

namespace deltawire::signsgd_test {
namespace {

using namespace testing;

double distance(const testing::EncodedValue& value) {
  return std::fabs(std::fabs(value.x()) - value.scalar());
}

// A value is sent as the scale with its sign; what is left is one rounded subtraction.
const testing::Expects kExpects{{
    .codec = "signsgd",
    .error_bound = distance,
    .conservation_bound = [](const testing::EncodedValue& value) { return distance(value) * 0x1p-24; },
    .tiny_signs = {1, -1, 1, 1},
    .refused = {"feedback=yes", "feedback=", "scale=one", "scale=two"},
}};

Encoded coded(const Floats& values) {
  return *testing::encode(*codec_of("signsgd"), values);
}

TEST(Signsgd, ABitForEachElementLowestFirst) {
  const Encoded part = coded({-1, 2, 3, -4, 0, -0.0F, 5, 6, -7, 8});
  EXPECT_EQ(testing::to_ints(part.payload), (Ints{0b1001, 0b1}));
  EXPECT_EQ(part.scalar, bits_of(3.6F));
  EXPECT_EQ(*testing::decode(*codec_of("signsgd"), part.view(), 10),
            (Floats{-3.6F, 3.6F, 3.6F, -3.6F, 3.6F, 3.6F, 3.6F, 3.6F, -3.6F, 3.6F}));
}

TEST(Signsgd, ZerosAlone) {
  const Encoded part = coded({0, -0.0F, 0});
  EXPECT_EQ(part.scalar, 0U);
  EXPECT_EQ(testing::to_ints(part.payload), Ints{0});
}

TEST(Signsgd, LargestAndSmallestValues) {
  EXPECT_EQ(coded(Floats(70000, kMax)).scalar, bits_of(kMax));
  EXPECT_EQ(coded({-kTiniest, 2 * kTiniest}).scalar, bits_of(2 * kTiniest));  // 1.5, a tie, to even
}

// A mean below the smallest float32 is 0, and then no sign is sent: all of it is left.
TEST(Signsgd, AMeanThatIsRoundedToZero) {
  for (const bool feedback : {false, true}) {
    Floats residual(4, 0.0F);
    const Floats values = {-kTiniest, 0, 0, 0};
    const auto codec = codec_of(feedback ? "signsgd" : "signsgd:feedback=off");
    const Encoded part = *testing::encode(*codec, values, residual);
    EXPECT_EQ(part.scalar, 0U);
    EXPECT_EQ(testing::to_ints(part.payload), Ints{0});
    EXPECT_EQ(residual, values);
    EXPECT_EQ(codec->info().error_feedback, feedback);
  }
}

// Values so far apart that sums depend on their order.
Floats wide_values(std::uint64_t count, std::uint64_t seed) {
  Floats values = testing::normal_values(count, seed);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::ldexp(values[i], static_cast<int>(i % 97) - 48);
  return values;
}

TEST(Signsgd, ScaleBitsAndResidualsAreTheModels) {
  for (const std::uint64_t count : {1U, 16U, 17U, 1000U, 65536U, 200003U}) {
    const Floats values = wide_values(count, count);
    Floats residual = wide_values(count, count + 1);
    Floats x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = values[i] + residual[i];
    const auto magnitude = [](std::uint64_t, float value) { return std::fabs(value); };
    ASSERT_EQ(spread_by({x.data(), nullptr, nullptr, count}, magnitude).sum, testing::sum_by_lanes(x))
        << count;
    const auto scale = static_cast<float>(testing::sum_by_lanes(x) / static_cast<double>(count));
    const Encoded part = *testing::encode(*codec_of("signsgd"), values, residual);
    ASSERT_EQ(part.scalar, bits_of(scale)) << count;
    for (std::size_t i = 0; i < count; ++i) {
      const bool negative = (part.payload[i / 8] >> (i % 8) & std::byte{1}) != std::byte{0};
      ASSERT_EQ(negative, x[i] < 0) << i;
      ASSERT_EQ(residual[i], x[i] - (negative ? -scale : scale)) << i;
    }
  }
}

TEST(Signsgd, FeedbackChangesNoByte) {
  const Floats values = testing::normal_values(1000, 6);
  EXPECT_EQ(testing::encode(*codec_of("signsgd:feedback=off"), values)->payload, coded(values).payload);
}

TEST(Signsgd, BareSignsHaveTheScaleOne) {
  const auto codec = codec_of("signsgd:feedback=off,scale=one");
  const Encoded part = *testing::encode(*codec, Floats{-3, 0, kTiniest, -kTiniest});
  EXPECT_EQ(part.scalar, bits_of(1));
  EXPECT_EQ(testing::to_ints(part.payload), Ints{0b1001});
  EXPECT_EQ(*testing::decode(*codec, part.view(), 4), (Floats{-1, 1, 1, -1}));
  for (const float scale : {0.0F, 2.0F, std::nextafter(1.0F, 2.0F)}) {
    EXPECT_EQ(testing::verdict_of(codec->spec(), one_chunk({0}, bits_of(scale)), 4), ErrorCode::kCorrupt);
  }
}

ErrorCode verdict(const Ints& bytes, std::uint32_t scale, std::uint64_t count) {
  return testing::verdict_of("signsgd", one_chunk(bytes, scale), count);
}

TEST(SignsgdRefusals, Bits) {
  const std::uint32_t two = bits_of(2);
  EXPECT_EQ(verdict({0b111}, two, 3), kAccepted);
  EXPECT_EQ(verdict({0b1111}, two, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0x80}, two, 7), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0xFF}, two, 8), kAccepted);
  EXPECT_EQ(verdict({0, 0}, 0, 16), kAccepted);
  EXPECT_EQ(verdict({0, 0x80}, 0, 16), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 0}, 0, 16), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0}, two, 9), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0, 0}, two, 8), ErrorCode::kCorrupt);
}

TEST(SignsgdRefusals, Scales) {
  for (const std::uint32_t scale : {0U, 1U, 0x7F7FFFFFU}) EXPECT_EQ(verdict({0}, scale, 1), kAccepted);
  for (const std::uint32_t scale : {0x7F800000U, 0x7FC00000U, 0x80000000U, 0xBF800000U}) {
    EXPECT_EQ(verdict({0}, scale, 1), ErrorCode::kCorrupt) << scale;
  }
}

}  // namespace
}  // namespace deltawire::signsgd_test
