// twobit: its bytes, ties and limits, MXNet's own values, and what a decoder must refuse.
#include <cmath>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"

namespace deltawire::twobit_test {
namespace {

using namespace testing;

const std::string kLargestSpec = "twobit:t=340282350000000000000000000000000000000";
const std::string kSmallestSpec = "twobit:t=0." + std::string(44, '0') + "1";

double error_bound(const testing::EncodedValue& value) {
  return std::fabs(value.x());
}

// One rounding of x - t.
double conservation_bound(const testing::EncodedValue& value) {
  return std::fabs(value.x()) * 0x1p-24;
}

const testing::Expects kExpects{{
    .codec = "twobit",
    .error_bound = error_bound,
    .conservation_bound = conservation_bound,
    .tiny_signs = {0, 0, 0, 0},
    .limits = {kLargestSpec, kSmallestSpec},
    .refused = {"t=0", "t=-1", "t=nan", "t=inf", "t=1e39", "t=1e-50", "t=x", "t="},
}};

// Of 2^-133 this one does send.
const testing::Expects kExpectsOfTheSmallest{{
    .codec = kSmallestSpec,
    .error_bound = error_bound,
    .conservation_bound = conservation_bound,
}};

ErrorCode verdict(const Ints& bytes, std::uint64_t count) {
  return testing::verdict_of("twobit", one_chunk(bytes, 0), count);
}

// Pushes `values`, one step after another, of a tensor whose elements are all alike; what each step sends.
Floats sent_of(std::string_view spec, const Floats& values, Floats& residual) {
  const auto codec = codec_of(spec);
  Floats sent;
  for (const float value : values) {
    const Floats in(residual.size(), value);
    const Encoded part = *testing::encode(*codec, in, residual);
    const Floats out = *testing::decode(*codec, part.view(), in.size());
    EXPECT_EQ(out, Floats(in.size(), out[0]));
    EXPECT_EQ(residual, Floats(in.size(), residual[0]));
    sent.push_back(out[0]);
  }
  return sent;
}

TEST(TwobitBytes, TheFirstElementIsHighest) {
  EXPECT_EQ(bytes_of("twobit", {0.5F, -0.5F, 0.0F, 0.5F}), Ints{0xE3});
  EXPECT_EQ(bytes_of("twobit", {0, 0, 0, 0, -7.0F}), (Ints{0, 0x80}));
  EXPECT_EQ(bytes_of("twobit", {1, 1, 1, 1, 1, 1, 1}), (Ints{0xFF, 0xFC}));
}

TEST(TwobitBytes, TheThresholdItselfIsSent) {
  const float below = std::nextafter(0.5F, 0.0F);
  EXPECT_EQ(bytes_of("twobit", {0.5F, below, -0.5F, -below}), Ints{0xC8});
  EXPECT_EQ(bytes_of("twobit:t=2", {2.0F, 1.999F, -2.0F, -1.999F}), Ints{0xC8});
}

TEST(TwobitBytes, AtTheLimits) {
  EXPECT_EQ(bytes_of(kLargestSpec, {kMax, -kMax, 1, -1e38F}), Ints{0xE0});
  EXPECT_EQ(bytes_of(kSmallestSpec, {kTiniest, -kTiniest, 0.0F, -0.0F}), Ints{0xE0});
}

TEST(TwobitResidual, KeepsWhatWasNotSent) {
  Floats residual = {0.25F, -0.25F, 0, 0};
  const auto codec = codec_of("twobit");
  const Encoded part = *testing::encode(*codec, Floats{0.5F, -2.0F, 0.375F, -0.375F}, residual);
  EXPECT_EQ(*testing::decode(*codec, part.view(), 4), (Floats{0.5F, -0.5F, 0, 0}));
  EXPECT_EQ(residual, (Floats{0.25F, -1.75F, 0.375F, -0.375F}));
}

TEST(TwobitResidual, OfTheLargestIsFinite) {
  Floats residual = {0, 0};
  const auto codec = codec_of(kLargestSpec);
  const Encoded part = *testing::encode(*codec, Floats{kMax, -kMax}, residual);
  EXPECT_EQ(*testing::decode(*codec, part.view(), 2), (Floats{kMax, -kMax}));
  EXPECT_EQ(residual, (Floats{0, 0}));
}

// apache/mxnet, tests/nightly/test_kvstore.py (compute_expected_2bit_quantization) and dist_sync_kvstore.py
// (check_compr_residual), with t = 0.5.
TEST(TwobitPublished, CheckComprResidual) {
  Floats residual(13, 0.0F);
  EXPECT_EQ(sent_of("twobit", {0.4F, 0.1F, 0.2F, 0.3F}, residual), (Floats{0, 0.5F, 0, 0.5F}));
  EXPECT_EQ(residual, Floats(13, 0.0F));
}

TEST(TwobitPublished, ExactlyTheThreshold) {
  Floats residual(5, 0.0F);
  EXPECT_EQ(sent_of("twobit", {0.5F, -0.5F, 0.5F}, residual), (Floats{0.5F, -0.5F, 0.5F}));
  EXPECT_EQ(residual, Floats(5, 0.0F));
}

// The same, verify_residual.
TEST(TwobitPublished, VerifyResidual) {
  Floats residual(13, 0.0F);
  EXPECT_EQ(sent_of("twobit", {0.4F, 0.2F}, residual), (Floats{0, 0.5F}));
  EXPECT_NEAR(residual[0], 0.1, 1e-7);
  EXPECT_EQ(sent_of("twobit", {0.2F, 0.2F}, residual), (Floats{0, 0.5F}));
  EXPECT_NEAR(residual[0], 0, 1e-7);
  EXPECT_EQ(sent_of("twobit", Floats(10, -0.5F), residual), Floats(10, -0.5F));
  EXPECT_NEAR(residual[0], 0, 1e-7);
}

// An independent reference: exact sums in double, of values that are multiples of 1/64.
TEST(TwobitReference, SumsOfManySteps) {
  constexpr std::uint64_t kCount = 70001;  // two chunks and padding
  const auto codec = codec_of("twobit");
  Floats residual(kCount, 0.0F);
  std::vector<double> owed(kCount, 0.0);
  for (std::uint64_t step = 0; step < 5; ++step) {
    Floats values = testing::normal_values(kCount, step);
    for (float& value : values) value = std::round(value * 16) / 64;
    const Encoded part = *testing::encode(*codec, values, residual);
    ASSERT_EQ(part.chunk_ends, (std::vector<std::uint32_t>{16384, 17501}));
    const Floats sent = *testing::decode(*codec, part.view(), kCount);
    for (std::uint64_t i = 0; i < kCount; ++i) {
      owed[i] += values[i];
      const double expected = std::fabs(owed[i]) < 0.5 ? 0.0 : std::copysign(0.5, owed[i]);
      owed[i] -= expected;
      ASSERT_EQ(sent[i], expected) << "step " << step << " element " << i;
      ASSERT_EQ(residual[i], owed[i]) << "step " << step << " element " << i;
    }
  }
}

TEST(TwobitDecoding, AZeroLeavesTheSlotsBits) {
  const Floats out =
      *testing::decode(*codec_of("twobit"), one_chunk({0}, 0).view(), 4, Into::kAccumulate, 1, -0.0F);
  EXPECT_TRUE(testing::same_bits(out, Floats(4, -0.0F)));
}

TEST(TwobitRefusals, Code01) {
  EXPECT_EQ(verdict({0xE3}, 4), kAccepted);
  for (const int byte : {0x40, 0x10, 0x04, 0x01}) EXPECT_EQ(verdict({byte}, 4), ErrorCode::kCorrupt) << byte;
  EXPECT_EQ(verdict({0, 0xC1, 0}, 12), ErrorCode::kCorrupt);
}

TEST(TwobitRefusals, Padding) {
  EXPECT_EQ(verdict({0xE0}, 3), kAccepted);
  for (const int byte : {1, 2, 3}) EXPECT_EQ(verdict({0xE0 + byte}, 3), ErrorCode::kCorrupt) << byte;
  for (int bit = 0; bit < 6; ++bit) EXPECT_EQ(verdict({0xC0 | 1 << bit}, 1), ErrorCode::kCorrupt) << bit;
}

TEST(TwobitRefusals, Lengths) {
  EXPECT_EQ(verdict({0xE3}, 5), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0xE3, 0}, 4), ErrorCode::kCorrupt);
}

TEST(TwobitSpecs, AreCanonical) {
  EXPECT_EQ(codec_of("twobit")->spec(), "twobit:t=0.5");
  EXPECT_EQ(codec_of("twobit:t=2.50")->spec(), "twobit:t=2.5");
}

}  // namespace
}  // namespace deltawire::twobit_test
