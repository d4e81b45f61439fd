// onebit: its bits, the means, an independent model, and what a decoder must refuse.
#include <bit>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"
#include "codecs/dispatch.h"
#include "codecs/onebit/onebit_ops.h"
#include "codecs/target_testing.h"

namespace deltawire::onebit_test {
namespace {

using namespace testing;

std::uint32_t word_at(const Encoded& part, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, part.payload.data() + at, sizeof word);
  return word;
}

double distance(const testing::EncodedValue& value) {
  std::uint32_t mean = value.x() < 0 ? value.part.scalar2 : value.part.scalar;
  if (value.codec.info().scalars == 0) {
    const std::uint64_t column = value.i % word_at(value.part, 0);
    mean = word_at(value.part, 4 + column * 8 + (value.x() < 0 ? 4 : 0));
  }
  return std::fabs(value.x() - static_cast<double>(std::bit_cast<float>(mean)));
}

// A value is sent as the mean of its side; what is left is one rounded subtraction. Zeros are on the upper
// side.
const testing::Expects kExpects{{
    .codec = "onebit",
    .error_bound = distance,
    .conservation_bound = [](const testing::EncodedValue& value) { return distance(value) * 0x1p-24; },
    .tiny_signs = {1, -1, 1, 1},
}};

Encoded coded(const Floats& values) {
  return *testing::encode(*codec_of("onebit"), values);
}

// A part of one chunk.
Encoded part_of(const Ints& bytes, std::uint32_t high, std::uint32_t low) {
  Encoded part = testing::one_chunk(bytes, high);
  part.scalar2 = low;
  return part;
}

TEST(Onebit, ABitForEachElementLowestFirst) {
  const Encoded part = coded({-1, 2, 3, -4, 0, -0.0F, 5, 6, -7, 8});
  EXPECT_EQ(testing::to_ints(part.payload), (Ints{0b1001, 0b1}));
  EXPECT_EQ(part.scalar, bits_of(24.0F / 7));
  EXPECT_EQ(part.scalar2, bits_of(-4));
}

// google-research/federated@a5af8c4433c9, compressed_communication/aggregators/comparison_methods/
// one_bit_sgd_test.py, lines 124 to 136: twice [0, 2, -1] is [2, 2, -2], 0 counting as above.
TEST(Onebit, APublishedVector) {
  const Encoded part = coded({0, 2, -1});
  const auto codec = codec_of("onebit");
  EXPECT_EQ(*testing::decode(*codec, part.view(), 3, Into::kOverwrite, 2), (Floats{2, 2, -2}));
}

TEST(Onebit, OneSideAlone) {
  const Encoded zeros = coded({0, -0.0F, 0});
  EXPECT_EQ(zeros.scalar, 0U);
  EXPECT_EQ(zeros.scalar2, 0U);
  EXPECT_EQ(coded({1, 3}).scalar, bits_of(2));
  EXPECT_EQ(coded({1, 3}).scalar2, 0U);
  EXPECT_EQ(coded({-1, -3}).scalar, 0U);
  EXPECT_EQ(coded({-1, -3}).scalar2, bits_of(-2));
  EXPECT_EQ(testing::to_ints(coded({-1, -3}).payload), Ints{0b11});
}

TEST(Onebit, LargestAndSmallestValues) {
  const Floats large(70000, kMax);
  EXPECT_EQ(coded(large).scalar, bits_of(kMax));
  const Encoded tiny = coded({-kTiniest, kTiniest, -2 * kTiniest});
  EXPECT_EQ(tiny.scalar, bits_of(kTiniest));
  EXPECT_EQ(tiny.scalar2, bits_of(-2 * kTiniest));  // 1.5, a tie, to even
}

TEST(Onebit, MeansBitsAndResidualsAreTheModels) {
  for (const std::uint64_t count : {1U, 16U, 17U, 1000U, 65536U, 200003U}) {
    Floats values = testing::normal_values(count, count);
    Floats residual = testing::normal_values(count, count + 1);
    for (std::size_t i = 0; i < count; ++i) {  // so far apart that sums depend on their order
      values[i] = std::ldexp(values[i], static_cast<int>(i % 97) - 48);
      residual[i] = std::ldexp(residual[i], static_cast<int>(i % 97) - 48);
    }
    Floats x(count);
    Floats high(count);
    Floats low(count);
    std::uint64_t negatives = 0;
    for (std::size_t i = 0; i < count; ++i) {
      x[i] = values[i] + residual[i];
      (x[i] < 0 ? low : high)[i] = std::fabs(x[i]);
      negatives += x[i] < 0 ? 1U : 0U;
    }
    for (const TargetId target : testing::runnable_targets()) {
      std::vector<std::byte> bits((count + 7) / 8);
      const onebit::Sides sides =
          onebit::kernels_for(target).split({x.data(), nullptr, nullptr, count}, bits.data());
      ASSERT_EQ(sides.high, testing::sum_by_lanes(high)) << count << " " << testing::target_info(target).name;
      ASSERT_EQ(sides.low, testing::sum_by_lanes(low)) << count << " " << testing::target_info(target).name;
      ASSERT_EQ(sides.negatives, negatives) << count << " " << testing::target_info(target).name;
    }
    const std::uint64_t others = count - negatives;
    const auto mean_high =
        others == 0 ? 0 : static_cast<float>(testing::sum_by_lanes(high) / static_cast<double>(others));
    const auto mean_low =
        negatives == 0 ? 0 : -static_cast<float>(testing::sum_by_lanes(low) / static_cast<double>(negatives));
    const Encoded part = *testing::encode(*codec_of("onebit"), values, residual);
    ASSERT_EQ(part.scalar, bits_of(mean_high)) << count;
    ASSERT_EQ(part.scalar2, bits_of(mean_low)) << count;
    for (std::size_t i = 0; i < count; ++i) {
      const bool negative = (part.payload[i / 8] >> (i % 8) & std::byte{1}) != std::byte{0};
      ASSERT_EQ(negative, x[i] < 0) << i;
      ASSERT_EQ(residual[i], x[i] - (negative ? mean_low : mean_high)) << i;
    }
  }
}

ErrorCode verdict(const Encoded& part, std::uint64_t count) {
  return testing::verdict_of("onebit", part, count);
}

TEST(OnebitRefusals, Bits) {
  const std::uint32_t high = bits_of(2);
  const std::uint32_t low = bits_of(-2);
  EXPECT_EQ(verdict(part_of({0b111}, high, low), 3), kAccepted);
  EXPECT_EQ(verdict(part_of({0b1111}, high, low), 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(part_of({0x80}, high, low), 7), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(part_of({0xFF}, high, low), 8), kAccepted);
  EXPECT_EQ(verdict(part_of({0, 0}, high, 0), 16), kAccepted);
  EXPECT_EQ(verdict(part_of({0, 0x80}, high, 0), 16), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(part_of({0}, high, low), 9), ErrorCode::kTruncated);
  EXPECT_EQ(verdict(part_of({0, 0}, high, low), 8), ErrorCode::kCorrupt);
}

TEST(OnebitRefusals, EveryTargetFindsASetBitWithoutAMean) {
  for (const TargetId target : testing::runnable_targets()) {
    const auto codec = *make_codec("onebit", target);
    Floats slot(800);
    for (std::size_t place = 0; place < slot.size(); ++place) {
      Encoded part = part_of(Ints(100, 0), bits_of(2), 0);
      part.payload[place / 8] = std::byte{1} << place % 8;
      const auto status =
          codec->decode(part.view(), {slot.data(), slot.size(), DType::kF32}, Into::kOverwrite, 1);
      ASSERT_FALSE(status) << place << " " << testing::target_info(target).name;
    }
  }
}

TEST(OnebitRefusals, Means) {
  for (const std::uint32_t high : {0U, 1U, 0x7F7FFFFFU}) {
    for (const std::uint32_t low : {0U, 0x80000001U, 0xFF7FFFFFU}) {
      EXPECT_EQ(verdict(part_of({0}, high, low), 1), kAccepted) << high << " " << low;
    }
  }
  for (const std::uint32_t high : {0x7F800000U, 0x7FC00000U, 0x80000000U, 0xBF800000U}) {
    EXPECT_EQ(verdict(part_of({0}, high, 0), 1), ErrorCode::kCorrupt) << high;
  }
  for (const std::uint32_t low : {1U, 0x3F800000U, 0x7F800000U, 0x80000000U, 0xFF800000U, 0xFFC00000U}) {
    EXPECT_EQ(verdict(part_of({0}, 0, low), 1), ErrorCode::kCorrupt) << low;
  }
}

}  // namespace
}  // namespace deltawire::onebit_test
