// What gcomp means: levels, cuts, special values, residuals. The bytes are in gcomp_bytes_test.cc.
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/random.h"
#include "codecs/gcomp/gcomp_testing.h"

namespace deltawire {
namespace {

using testing::bits_of;
using testing::codec_of;
using testing::same_bits;
using testing::significant_round_trip;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

std::vector<float> round_trip(std::string_view spec, const std::vector<float>& values) {
  return significant_round_trip(spec, values, {});
}

// Low bits that gcomp drops of `g` beside the significance `num`: of a number whose mantissa is all ones.
int dropped(float g, float num) {
  const float full = from_bits(bits_of(g) | 0x007FFFFF);
  EXPECT_EQ(significant_round_trip("gcomp", {g}, {num})[0], from_bits(bits_of(g))) << "no bits to drop";
  const std::uint32_t left = bits_of(significant_round_trip("gcomp", {full}, {num})[0]);
  return (bits_of(full) & left) == left ? std::countr_zero(left) : -1;
}

TEST(Gcomp, LevelsChangeJustAboveThePowersOfTwo) {
  // full = 2 - 2^-23; 2^n * full is exact, and only what is greater cuts.
  const float full = from_bits(0x3FFFFFFF);
  for (const int n : {6, 12, 18}) {
    const float boundary = std::ldexp(full, n);
    EXPECT_EQ(dropped(1, boundary), n - 6) << n;
    EXPECT_EQ(dropped(1, std::nextafter(boundary, 0.0F)), n - 6) << n;
    EXPECT_EQ(dropped(1, std::nextafter(boundary, kInf)), n) << n;
    EXPECT_EQ(dropped(-1, std::nextafter(boundary, kInf)), n) << n;
    EXPECT_EQ(dropped(1, -std::nextafter(boundary, kInf)), n) << n;
    EXPECT_EQ(dropped(-1, -boundary), n - 6) << n;
  }
}

TEST(Gcomp, LevelsOfSpecialSignificances) {
  EXPECT_EQ(dropped(1, 0), 0);
  EXPECT_EQ(dropped(1, -0.0F), 0);
  EXPECT_EQ(dropped(1, 0x1p-140F), 0);
  EXPECT_EQ(dropped(1, kNan), 0);
  EXPECT_EQ(dropped(1, -kNan), 0);
  EXPECT_EQ(dropped(1, kInf), 18);
  EXPECT_EQ(dropped(1, -kInf), 18);
  EXPECT_EQ(dropped(0x1p126F, kInf), 18);  // 2^18 * g overflows, infinity is still greater
  EXPECT_EQ(dropped(0x1p126F, std::numeric_limits<float>::max()), 0);
  EXPECT_EQ(dropped(0x1p120F, std::numeric_limits<float>::max()), 6);  // 2^12 * g would overflow
  EXPECT_EQ(dropped(0x1p-126F, 0x1p-100F), 18);
  EXPECT_EQ(dropped(0x1p-126F, 0x1p-127F), 0);
}

TEST(Gcomp, SpecialGradientsWithASignificance) {
  const std::vector<float> values = {
      kNan, from_bits(0x7F800001), from_bits(0xFFFFFFFF), kInf, -kInf, 0x1p-127F, -0x1p-149F, 0.0F, -0.0F};
  const std::vector<float> significance(values.size(), kInf);
  const auto back = significant_round_trip("gcomp", values, significance);
  // NaN and Inf are never cut: a NaN could turn into Inf.
  EXPECT_TRUE(same_bits(std::span(back).first(5), std::span(values).first(5)));
  for (std::size_t i = 5; i < values.size(); ++i) EXPECT_EQ(bits_of(back[i]), 0U) << i;
}

TEST(Gcomp, NothingIsCutWithoutSignificance) {
  const std::vector<float> values = testing::normal_values(70000, 3);
  EXPECT_TRUE(same_bits(round_trip("gcomp", values), values));
  EXPECT_TRUE(same_bits(round_trip("gcomp:cut=0", values), values));
}

TEST(Gcomp, UniformCutTruncatesTowardsZeroAndIgnoresSignificance) {
  const std::vector<float> values = testing::normal_values(20000, 4);
  for (const unsigned n : {6U, 12U, 18U}) {
    const std::string spec = "gcomp:cut=" + std::to_string(n);
    const auto back = significant_round_trip(spec, values, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(bits_of(back[i]), bits_of(values[i]) >> n << n) << spec << " " << i;
    }
    const auto nans = round_trip(spec, {from_bits(0x7F800001), kNan, -kInf});
    EXPECT_EQ(bits_of(nans[0]), 0x7F800001U);
    EXPECT_TRUE(std::isnan(nans[1]));
    EXPECT_EQ(nans[2], -kInf);
  }
}

// A slow reading of the rule: all in double, where products of powers of two are exact.
float slow_cut(float g, float num) {
  if (!std::isfinite(g)) return g;
  if (std::fabs(g) < 0x1p-126F) return 0;
  for (const int n : {18, 12, 6}) {
    if (std::fabs(static_cast<double>(num)) > std::ldexp(std::fabs(static_cast<double>(g)), n)) {
      return from_bits(bits_of(g) >> n << n);
    }
  }
  return g;
}

RC_GTEST_PROP(Gcomp, LevelsAreTheRuleOfThePaper, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 3000);
  CounterRng random(*rc::gen::arbitrary<std::uint64_t>());
  std::vector<float> values(count);
  std::vector<float> significance(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = from_bits(static_cast<std::uint32_t>(random.next()));
    // Half of them close to a boundary.
    const float near = std::ldexp(values[i], static_cast<int>(random.next() % 25));
    significance[i] = random.next() % 2 == 0 ? near : from_bits(static_cast<std::uint32_t>(random.next()));
  }
  const auto back = significant_round_trip("gcomp", values, significance);
  for (std::size_t i = 0; i < count; ++i) {
    RC_ASSERT(bits_of(back[i]) == bits_of(slow_cut(values[i], significance[i])));
  }
}

TEST(Gcomp, LosslessKeepsEveryBit) {
  CounterRng random(8);
  for (const std::size_t count : {1U, 17U, 255U, 256U, 1000U, 16384U, 16385U, 100000U, 262145U}) {
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

TEST(Gcomp, InfoAndSpecSayWhetherItIsLossless) {
  EXPECT_FALSE(codec_of("gcomp")->info().lossless);
  EXPECT_TRUE(codec_of("gcomp:lossless=on")->info().lossless);
  EXPECT_EQ(codec_of("gcomp:lossless=on")->info().id, 5);
  EXPECT_EQ(codec_of("gcomp")->spec(), "gcomp:cut=auto,lossless=off");
  EXPECT_EQ(codec_of("gcomp:cut=18")->spec(), "gcomp:cut=18,lossless=off");
  EXPECT_EQ(codec_of("gcomp:lossless=on")->spec(), "gcomp:cut=0,lossless=on");
  EXPECT_EQ(codec_of("gcomp:lossless=on,cut=0")->spec(), "gcomp:cut=0,lossless=on");
  for (const char* spec : {"gcomp:cut=1", "gcomp:cut=24", "gcomp:cut=06", "gcomp:lossless=yes",
                           "gcomp:lossless=on,cut=6", "gcomp:cut=auto,lossless=on"}) {
    const auto codec = make_codec(spec);
    ASSERT_FALSE(codec) << spec;
    EXPECT_EQ(codec.error().code, ErrorCode::kInvalidArgument);
  }
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

TEST(Gcomp, DecodedZerosLeaveTheSlotAsItIs) {
  // Zero blocks, coded zeros and stored ones.
  for (const std::size_t count : {1U, 3U, 300U, 20000U}) {
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
}  // namespace deltawire
