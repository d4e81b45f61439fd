// natural: its bytes, limits, an independent model, and what a decoder must refuse.
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"

namespace deltawire::natural_test {
namespace {

using namespace testing;

// A value is rounded to less than it, or to less than twice it; below 2^-126 up to that.
const testing::Expects kExpects{{
    .codec = "natural",
    .error_bound =
        [](const testing::EncodedValue& value) { return std::fmax(std::fabs(value.x()), 0x1p-126); },
    .tiny_signs = {0, 0, 0, 0},  // 2^-133 becomes 2^-126 with a chance of 1 in 128
    .draws = true,
}};

Encoded coded(const Floats& values, std::uint64_t stream = 3) {
  return *testing::encode_view(*codec_of("natural"), {values.data(), values.size(), DType::kF32}, {}, stream);
}

TEST(Natural, ExponentsThenSignsLowestFirst) {
  const Encoded part = coded({1, -2, 0.5F, -0x1p-126F, 0, -0.0F, 0x1p127F, -0x1p127F, -8, 1});
  EXPECT_EQ(testing::to_ints(part.payload),
            (Ints{127, 128, 126, 1, 0, 0, 254, 254, 130, 127, 0b10001010, 0b1}));
}

TEST(Natural, PowersOfTwoAreKept) {
  Floats values = {0};
  for (int exponent = -126; exponent <= 127; ++exponent) {
    values.push_back(std::ldexp(1.0F, exponent));
    values.push_back(-std::ldexp(1.0F, exponent));
  }
  for (std::uint64_t stream = 0; stream < 20; ++stream) {
    EXPECT_EQ(*testing::decode(*codec_of("natural"), coded(values, stream).view(), values.size()), values);
  }
}

// spec.md, steps 3 and 4, once more and in real numbers: up with the chance (x - low) / (high - low).
float model(float x, std::uint64_t stream, std::uint64_t i) {
  const std::uint64_t number = CounterRng(stream).at(i / 2);
  const double u = static_cast<double>((i % 2 == 0 ? number & 0xFFFFFFFF : number >> 32) >> 9) * 0x1p-23;
  const double magnitude = std::fabs(static_cast<double>(x));
  double low = 0;
  double high = 0x1p-126;
  if (magnitude >= high) {
    low = std::ldexp(1.0, std::ilogb(magnitude));
    high = 2 * low;
  }
  const double rounded = u + (magnitude - low) / (high - low) >= 1 ? high : low;
  return rounded == 0 ? 0.0F : std::copysign(static_cast<float>(rounded), x);
}

Floats any_values(std::uint64_t count, std::uint64_t seed) {
  CounterRng random(seed);
  Floats values(count);
  for (float& value : values) {
    value = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
    if (!(std::fabs(value) <= 0x1p126F)) value = 0x1.8p-127F;
  }
  return values;
}

TEST(Natural, ValuesAndResidualsAreTheModels) {
  for (const std::uint64_t count : {1U, 7U, 1000U, 65536U, 65537U, 131075U}) {
    const Floats values = any_values(count, count);
    Floats residual = any_values(count, count + 1);
    for (float& value : residual) value *= 0.5F;
    const Floats before = residual;
    const auto codec = codec_of("natural");
    const Encoded part = *testing::encode(*codec, values, residual);
    const Floats back = *testing::decode(*codec, part.view(), count);
    for (std::size_t i = 0; i < count; ++i) {
      const float x = values[i] + before[i];
      const float wanted = model(x, 3, i);
      ASSERT_EQ(bits_of(back[i]), bits_of(wanted)) << i << " of " << count << ": " << x;
      ASSERT_EQ(residual[i], x - wanted) << i;
      ASSERT_EQ(static_cast<double>(residual[i]), static_cast<double>(x) - wanted) << "rounded: " << i;
    }
  }
}

// Streams whose first draw is the highest of 2^23, and the lowest: the way up is taken with any chance, or
// with none.
TEST(Natural, TheHighestAndTheLowestDraw) {
  constexpr std::uint64_t kHighest = 9632512;
  constexpr std::uint64_t kLowest = 22461594;
  ASSERT_EQ(CounterRng(kHighest).at(0) >> 9 & 0x7FFFFF, 0x7FFFFFU);
  ASSERT_EQ(CounterRng(kLowest).at(0) >> 9 & 0x7FFFFF, 0U);
  const auto rounded = [](float x, std::uint64_t stream) {
    return testing::decode(*codec_of("natural"), coded({x}, stream).view(), 1)->at(0);
  };
  const float above_one = std::nextafter(1.0F, 2.0F);
  const float below_two = std::nextafter(2.0F, 1.0F);
  EXPECT_EQ(rounded(1, kHighest), 1);
  EXPECT_EQ(rounded(0, kHighest), 0);
  EXPECT_EQ(rounded(0x1p127F, kHighest), 0x1p127F);
  EXPECT_EQ(rounded(above_one, kHighest), 2);
  EXPECT_EQ(rounded(0x1p-149F, kHighest), 0x1p-126F);
  EXPECT_EQ(rounded(below_two, kLowest), 1);
  EXPECT_EQ(rounded(-below_two, kLowest), -1);
  EXPECT_EQ(rounded(0x0.fffffep-126F, kLowest), 0);
}

TEST(Natural, WhatCouldBecomeInfIsRefusedAndTheResidualStays) {
  for (const float large : {std::nextafter(0x1p127F, kMax), kMax, -kMax}) {
    Floats residual = {1, 2};
    const auto part = testing::encode(*codec_of("natural"), Floats{1, large}, residual);
    ASSERT_FALSE(part);
    EXPECT_EQ(part.error().code, ErrorCode::kRange);
    EXPECT_EQ(residual, (Floats{1, 2}));
  }
  Floats residual = {0, kMax};
  EXPECT_EQ(testing::encode(*codec_of("natural"), Floats{1, kMax}, residual).error().code,
            ErrorCode::kNotFinite);
}

TEST(Natural, AZeroLeavesTheSlotsBits) {
  const Encoded part = one_chunk({128, 0, 127, 0b100}, 0);
  const Floats kept = *testing::decode(*codec_of("natural"), part.view(), 3, Into::kAccumulate, 1, -0.0F);
  EXPECT_EQ(bits_of(kept[1]), bits_of(-0.0F));
}

ErrorCode verdict(const Ints& bytes, std::uint64_t count) {
  return testing::verdict_of("natural", one_chunk(bytes, 0), count);
}

TEST(NaturalRefusals, CodesAndLengths) {
  EXPECT_EQ(verdict({254, 1, 0, 0b11}, 3), kAccepted);
  EXPECT_EQ(verdict({255, 1, 0, 0}, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({254, 1, 255, 0}, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({254, 1, 0, 0b100}, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({254, 1, 1, 0b1000}, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 1, 1, 1, 1, 1, 1, 1, 0xFF}, 8), kAccepted);
  EXPECT_EQ(verdict({1, 1, 1}, 3), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({1, 1, 1, 0, 0}, 3), ErrorCode::kCorrupt);
}

TEST(NaturalRefusals, CodesOfALaterChunk) {
  Encoded part = coded(Floats(65538, 1.0F));
  part.payload[65536 + 8192] = std::byte{255};
  EXPECT_EQ(testing::verdict_of("natural", part, 65538), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deltawire::natural_test
