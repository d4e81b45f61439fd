// What gcomp means: specs, what is kept whole, residuals, zeros. What is cut is in gcomp_rounding_test.cc,
// the bytes in gcomp_bytes_test.cc.
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/random.h"
#include "codecs/gcomp/gcomp_testing.h"

namespace deltawire::gcomp_test {
namespace {

using testing::bits_of;
using testing::codec_of;
using testing::same_bits;
using testing::significant_round_trip;

// Rounding moves a value by half of the lowest bit that it keeps, the largest ones are kept whole; what lies
// below the normal numbers is flushed.
double gcomp_error(const testing::EncodedValue& value) {
  const std::string spec = value.codec.spec();
  const std::size_t at = spec.find("cut=") + 4;
  const int bits = std::isdigit(static_cast<unsigned char>(spec[at])) != 0 ? std::stoi(spec.substr(at)) : 0;
  const bool cuttable = bits > 0 && std::fabs(value.x()) < 0x1p127;
  const double cut = cuttable ? std::ldexp(std::fabs(value.x()), bits - 24) : 0;
  return std::fabs(value.x()) < 0x1p-126 && !value.codec.info().lossless ? 0x1p-126 : cut;
}

const testing::Expects kExpects{{
    .codec = "gcomp",
    .error_bound = gcomp_error,
    .tiny_signs = {0, 0, 0, 0},
    .limits = {"gcomp:cut=0", "gcomp:cut=12"},
}};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

std::vector<float> round_trip(std::string_view spec, const std::vector<float>& values) {
  return significant_round_trip(spec, values, {});
}

TEST(Gcomp, NothingIsCutWithoutSignificance) {
  const std::vector<float> values = testing::normal_values(70000, 3);
  EXPECT_TRUE(same_bits(round_trip("gcomp", values), values));
  EXPECT_TRUE(same_bits(round_trip("gcomp:cut=0", values), values));
  // With a significance that cut=0 doesn't look at.
  const std::vector<float> invisible(values.size(), kInf);
  EXPECT_TRUE(same_bits(significant_round_trip("gcomp:cut=0", values, invisible), values));
  EXPECT_FALSE(same_bits(significant_round_trip("gcomp", values, invisible), values));
}

TEST(Gcomp, LosslessKeepsEveryBit) {
  CounterRng random(8);
  for (const std::size_t count : {1U, 17U, 255U, 256U, 1000U, 16384U, 16385U, 32769U, 100000U, 262145U}) {
    // All patterns; then normal values among which some are tiny, NaN or -0, so that blocks are coded.
    std::vector<float> patterns(count);
    for (float& value : patterns) value = from_bits(static_cast<std::uint32_t>(random.next()));
    EXPECT_TRUE(same_bits(round_trip("gcomp:lossless=on", patterns), patterns)) << count;
    std::vector<float> values = testing::normal_values(count, count);
    for (float& value : values) {
      const std::uint64_t draw = random.next() % 64;
      if (draw == 0) value = 0;
      if (draw == 1) value = -0.0F;
      if (draw == 2) value = from_bits(static_cast<std::uint32_t>(random.next()) & 0x807FFFFF);
      if (draw == 3) value = from_bits(static_cast<std::uint32_t>(random.next()) | 0x7F800000);
    }
    EXPECT_TRUE(same_bits(round_trip("gcomp:lossless=on", values), values)) << count;
    EXPECT_TRUE(same_bits(significant_round_trip("gcomp:lossless=on", values, values), values)) << count;
  }
}

TEST(Gcomp, LosslessKeepsTheSignsOfZerosThatAreAlone) {
  for (const std::size_t count : {1U, 300U, 40000U}) {
    const std::vector<float> zeros(count, -0.0F);
    EXPECT_TRUE(same_bits(round_trip("gcomp:lossless=on", zeros), zeros)) << count;
  }
}

TEST(Gcomp, InfoAndSpecSayWhetherItIsLossless) {
  EXPECT_FALSE(codec_of("gcomp")->info().lossless);
  EXPECT_TRUE(codec_of("gcomp:lossless=on")->info().lossless);
  EXPECT_EQ(codec_of("gcomp:lossless=on")->info().id, 5);
  EXPECT_TRUE(codec_of("gcomp")->info().significance);
  for (const char* spec : {"gcomp:cut=0", "gcomp:cut=6", "gcomp:cut=18", "gcomp:lossless=on"}) {
    EXPECT_FALSE(codec_of(spec)->info().significance) << spec;
  }
  EXPECT_EQ(codec_of("gcomp")->spec(), "gcomp:cut=auto,levels=8,lossless=off");
  EXPECT_EQ(codec_of("gcomp:levels=4")->spec(), "gcomp:cut=auto,levels=4,lossless=off");
  EXPECT_EQ(codec_of("gcomp:cut=18")->spec(), "gcomp:cut=18,levels=8,lossless=off");
  EXPECT_EQ(codec_of("gcomp:lossless=on")->spec(), "gcomp:cut=0,levels=8,lossless=on");
  EXPECT_EQ(codec_of("gcomp:lossless=on,cut=0")->spec(), "gcomp:cut=0,levels=8,lossless=on");
  for (const char* spec : {"gcomp:cut=1", "gcomp:cut=24", "gcomp:cut=06", "gcomp:lossless=yes",
                           "gcomp:levels=2", "gcomp:cut=6,levels=4", "gcomp:levels=4,lossless=on",
                           "gcomp:lossless=on,cut=6", "gcomp:cut=auto,lossless=on"}) {
    const auto codec = make_codec(spec);
    ASSERT_FALSE(codec) << spec;
    EXPECT_EQ(codec.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(make_codec("gcomp:cut=6,levels=4").error().message,
            "gcomp: levels=4 together with cut=6: levels are those of cut=auto; leave one out");
  EXPECT_EQ(make_codec("gcomp:cut=6,lossless=on").error().message,
            "gcomp: cut=6 together with lossless=on: give cut=0, or leave it out");
}

TEST(Gcomp, ResidualIsWhatWasCut) {
  const std::vector<float> values = {1.9999999F, -1e-40F, kInf, kNan, 3};
  std::vector<float> residual = {0, 0, 1, 1, 0x1p-20F};
  const auto codec = codec_of("gcomp:cut=18");
  const auto part = *testing::encode(*codec, values, residual);
  const auto back = *testing::decode(*codec, part.view(), values.size());
  EXPECT_EQ(back[0] + static_cast<double>(residual[0]), values[0]);
  EXPECT_EQ(back[1], 0);
  EXPECT_EQ(residual[1], -1e-40F);
  EXPECT_EQ(residual[2], 0);
  EXPECT_EQ(residual[3], 0);
  EXPECT_EQ(back[4], 3);
  EXPECT_EQ(residual[4], 0x1p-20F);
}

// Through blocks and chunks: each element has its own residual.
TEST(Gcomp, ResidualsOfLargePartsAddUp) {
  constexpr std::size_t kCount = 262144 + 32768 + 5;
  const std::vector<float> values = testing::normal_values(kCount, 11);
  std::vector<float> residual = testing::normal_values(kCount, 12);
  std::vector<float> x(kCount);
  for (std::size_t i = 0; i < kCount; ++i) x[i] = values[i] + residual[i];
  const auto codec = codec_of("gcomp:cut=12");
  const auto part = *testing::encode(*codec, values, residual);
  const auto back = *testing::decode(*codec, part.view(), kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(static_cast<double>(back[i]) + static_cast<double>(residual[i]), x[i]) << i;
    ASSERT_LE(std::fabs(residual[i]), std::ldexp(std::fabs(x[i]), -12)) << i;
  }
}

TEST(Gcomp, DecodedZerosLeaveTheSlotAsItIs) {
  // Zero blocks, coded zeros and stored ones.
  for (const std::size_t count : {1U, 3U, 300U, 40000U}) {
    std::vector<float> values(count, 0.0F);
    for (std::size_t i = 0; i < count; i += 3) values[i] = count < 300 ? 1.2345F : 1.0F;
    for (const char* spec : {"gcomp", "gcomp:lossless=on"}) {
      const auto codec = codec_of(spec);
      for (const auto& x : {values, std::vector<float>(count, 0.0F)}) {
        const auto part = *testing::encode(*codec, x);
        // -0 + 0 would be +0, and -1 * 0 would be -0.
        const auto sum = *testing::decode(*codec, part.view(), count, Into::kAccumulate, 1, -0.0F);
        const auto slot = *testing::decode(*codec, part.view(), count, Into::kOverwrite, -1, 7);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(bits_of(sum[i]), x[i] == 0 ? 0x80000000U : bits_of(x[i]));
          ASSERT_EQ(bits_of(slot[i]), x[i] == 0 ? 0U : bits_of(-x[i]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace deltawire::gcomp_test
