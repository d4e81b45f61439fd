// What 3lc means: quantization, residuals, errors. The bytes are in threelc_bytes_test.cc.
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/float_environment.h"
#include "base/property_testing.h"
#include "codecs/codec_testing.h"

namespace deltawire::threelc_test {
namespace {

using testing::bits_of;
using testing::codec_of;

// Values in {-m, 0, m}; the scalar is m.
const testing::Expects kExpects{{
    .codec = "3lc",
    .error_bound = [](const testing::EncodedValue& value) { return value.scalar() / 2; },
    .limits = {"3lc:s=1.9999,mode=auto"},
}};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> round_trip(std::string_view spec, const std::vector<float>& values) {
  const auto codec = codec_of(spec);
  const auto part = testing::encode(*codec, values);
  return *testing::decode(*codec, part->view(), values.size());
}

// The smallest m above 2^-126 that is odd has no half among the floats: the bound is the next one up.
TEST(Threelc, HalfOfAnOddScaleIsRoundedUp) {
  const auto float_of = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  const auto back = round_trip("3lc", {float_of(0x00800001), float_of(0x00400000), float_of(0x00400001)});
  EXPECT_EQ(bits_of(back[0]), 0x00800001U);
  EXPECT_EQ(bits_of(back[1]), 0U) << "below m / 2";
  EXPECT_EQ(bits_of(back[2]), 0x00800001U) << "above it";
}

Error encode_error(std::string_view spec, const std::vector<float>& values,
                   std::vector<float> residual = {}) {
  const std::vector<float> before = residual;
  const auto part = testing::encode(*codec_of(spec), values, residual);
  EXPECT_FALSE(part);
  EXPECT_TRUE(testing::same_bits(before, residual)) << "residual";
  return part ? Error{} : part.error();
}

TEST(Threelc, TiesAtHalfOfMGoAwayFromZero) {
  const float below = std::nextafter(0.5F, 0.0F);
  EXPECT_EQ(round_trip("3lc", {1, 0.5F, -0.5F, below, -below}), (std::vector<float>{1, 1, -1, 0, 0}));
  // m = 1.75: half is 0.875
  EXPECT_EQ(round_trip("3lc:s=1.75", {1, 0.875F, 0.874F, -0.875F}),
            (std::vector<float>{1.75F, 1.75F, 0, -1.75F}));
}

TEST(Threelc, SubnormalsAreValues) {
  const float least = 0x1p-149F;
  EXPECT_EQ(round_trip("3lc", {least, -least, 0}), (std::vector<float>{least, -least, 0}));
  // m of 3 units: half is 1.5 units, which 2 reach and 1 doesn't.
  EXPECT_EQ(round_trip("3lc", {3 * least, 2 * least, least}), (std::vector<float>{3 * least, 3 * least, 0}));
  // The last binade with the spacing of subnormals, odd: half lies between two floats.
  const auto odd = std::bit_cast<float>(0x00FFFFFFU);
  const auto upper = std::bit_cast<float>(0x00800000U);
  const auto lower = std::bit_cast<float>(0x007FFFFFU);
  EXPECT_EQ(round_trip("3lc", {odd, upper, lower}), (std::vector<float>{odd, odd, 0}));
  const auto even = std::bit_cast<float>(0x01000000U);
  EXPECT_EQ(round_trip("3lc", {even, upper, lower}), (std::vector<float>{even, even, 0}));
}

TEST(Threelc, ZeroTensorHasNoNaN) {
  const auto codec = codec_of("3lc:s=1.75");
  std::vector<float> residual = {0, 0, 0};
  const auto part = testing::encode(*codec, std::vector<float>{0.0F, -0.0F, 0.0F}, residual);
  EXPECT_EQ(part->scalar, 0U);
  const auto back = *testing::decode(*codec, part->view(), 3, Into::kOverwrite, 1, 7);
  for (const float value : back) {
    EXPECT_EQ(bits_of(value), 0U);
  }
}

TEST(Threelc, NotFiniteNamesTheFirstElement) {
  const Error input = encode_error("3lc", {0, 1, kNan, kInf}, {0, 1, 2, 3});
  EXPECT_EQ(input.code, ErrorCode::kNotFinite);
  EXPECT_EQ(input.message.rfind("element 2 of the input is NaN", 0), 0U) << input.message;
  EXPECT_EQ(encode_error("3lc", {-kInf}).message.rfind("element 0 of the input is -Inf", 0), 0U);
  const Error sum = encode_error("3lc", {0, 3e38F}, {0, 3e38F});
  EXPECT_EQ(sum.code, ErrorCode::kNotFinite);
  EXPECT_EQ(sum.message.rfind("element 1 is Inf once the residual 3e+38 is added", 0), 0U) << sum.message;
  EXPECT_EQ(encode_error("3lc", {1}, {kNan}).code, ErrorCode::kNotFinite);
}

TEST(Threelc, OverflowOfMIsRefused) {
  EXPECT_EQ(encode_error("3lc:s=1.75", {2e38F, 1}, {0, 5}).code, ErrorCode::kRange);
  EXPECT_EQ(round_trip("3lc", {3.4e38F, 1}), (std::vector<float>{3.4e38F, 0}));
}

TEST(Threelc, AccumulateAddsAndLeavesZerosAlone) {
  const auto codec = codec_of("3lc");
  for (const char* spec : {"3lc:runs=off", "3lc:mode=paper", "3lc"}) {
    std::vector<float> values(1000, 0.0F);
    values[3] = 3;
    values[700] = -3;
    const auto part = testing::encode(*codec_of(spec), values);
    const auto sum = *testing::decode(*codec, part->view(), 1000, Into::kAccumulate, 0.5F, -0.0F);
    EXPECT_EQ(sum[3], 1.5F);
    EXPECT_EQ(sum[700], -1.5F);
    // Zeros in a byte of their own, and those that share one with 3 and 700.
    for (std::size_t i = 0; i < sum.size(); ++i) {
      ASSERT_TRUE(i == 3 || i == 700 || bits_of(sum[i]) == 0x80000000U) << spec << " " << i;
    }
    EXPECT_EQ(bits_of(testing::decode(*codec, part->view(), 1000, Into::kOverwrite, 1, -0.0F)->at(0)), 0U);
  }
}

TEST(Threelc, ScaleThenAddAreTwoRoundings) {
  const float value = 1 + 0x1p-23F;
  const auto codec = codec_of("3lc");
  const auto part = testing::encode(*codec, std::vector<float>{value});
  EXPECT_EQ(testing::decode(*codec, part->view(), 1, Into::kAccumulate, value, -1)->at(0), 0x1p-22F);
}

// x = q * m + r holds exactly, whatever the values: x - m has no rounding.
PROPERTY(ThreelcProperty, NothingIsLost) {
  const auto bits = testing::drawn_numbers();
  const auto choice = testing::drawn(0, 256);
  std::vector<float> values;
  for (const std::int32_t word : bits) {
    // 0x7E..: below the range in which m could overflow.
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(word) * 2654435761U & 0xFEFFFFFFU);
    values.push_back(std::isfinite(value) && std::fabs(value) < 1e38F ? value : 0.25F);
  }
  const char* specs[] = {"3lc", "3lc:s=1.75", "3lc:s=1.1,mode=paper", "3lc:s=1.999"};
  const auto codec = codec_of(specs[choice % 4]);
  std::vector<float> residual(values.size(), 0.0F);
  const auto part = testing::encode(*codec, values, residual);
  HOLDS(part.has_value());
  const auto back = *testing::decode(*codec, part->view(), values.size());
  const double m = std::bit_cast<float>(part->scalar);
  for (std::size_t i = 0; i < values.size(); ++i) {
    HOLDS(static_cast<double>(back[i]) + static_cast<double>(residual[i]) == static_cast<double>(values[i]));
    HOLDS(std::fabs(residual[i]) <= m / 2);
  }
}

// With small integers the sum over all steps of what was decoded, plus the residual, is the sum of the
// inputs.
PROPERTY(ThreelcProperty, IntegersAreConservedOverSteps) {
  const auto steps = testing::drawn_rows();
  const auto codec = codec_of("3lc");
  constexpr std::size_t kCount = 37;
  std::vector<float> residual(kCount, 0.0F);
  std::vector<float> total(kCount, 0.0F);
  std::vector<float> decoded(kCount, 0.0F);
  for (const auto& step : steps) {
    std::vector<float> values(kCount, 0.0F);
    for (std::size_t i = 0; i < kCount && i < step.size(); ++i) values[i] = step[i];
    const auto part = testing::encode(*codec, values, residual);
    HOLDS(part.has_value());
    const auto back = *testing::decode(*codec, part->view(), kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      total[i] += values[i];
      decoded[i] += back[i];
      HOLDS(decoded[i] + residual[i] == total[i]);
    }
  }
}

TEST(FloatEnvironment, SetsTheDefinedModeAndRestores) {
  const std::uint64_t before = FloatEnvironment::read_control();
  const std::uint64_t callers = before | FloatEnvironment::kFlushToZero | FloatEnvironment::kRoundUp;
  FloatEnvironment::write_control(callers);
  volatile float tiny = 0x1p-140F;
  // Volatile, or the compiler computes them under another mode than the line they stand in.
  volatile float flushed = tiny * 0.5F;
  volatile float kept = 0;
  std::uint64_t inside = 0;
  {
    const FloatEnvironment environment;
    inside = FloatEnvironment::read_control();
    kept = tiny * 0.5F;
  }
  const std::uint64_t after = FloatEnvironment::read_control();
  FloatEnvironment::write_control(before);
  if (FloatEnvironment::kFlushToZero != 0) {
    EXPECT_EQ(bits_of(flushed), 0U) << "the caller's mode isn't in force: this test proves nothing";
  }
  EXPECT_EQ(inside & callers & (FloatEnvironment::kFlushToZero | FloatEnvironment::kRoundUp), 0U);
  EXPECT_EQ(bits_of(kept), 0x100U);
  EXPECT_EQ(after & callers, callers);
}

}  // namespace
}  // namespace deltawire::threelc_test
