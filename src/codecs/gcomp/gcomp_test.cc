// What gcomp means: specs, what is kept whole, residuals, zeros; which low bits it drops, and how far that
// moves a value (spec.md, 6.2); and that the number of threads changes no byte, residual, value or fault.
// The bytes are in gcomp_bytes_test.cc.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/crc32c.h"
#include "base/float16.h"
#include "base/float_environment.h"
#include "base/property_testing.h"
#include "base/random.h"
#include "codecs/codec_testing.h"
#include "deltawire/workers.h"

namespace deltawire::gcomp_test {
namespace {

using namespace testing;

// What the parameter `values` costs, at most.
double rounding_error(const std::string& spec, double magnitude) {
  if (spec.ends_with("bf16")) return magnitude * (magnitude < 0x1p127 ? 0x1p-8 : 0x1p-7);
  if (spec.ends_with("fp16")) return std::max({magnitude * 0x1p-11, 0x1p-25, magnitude - 65504});
  return 0;
}

// Rounding moves a value by half of the lowest bit that it keeps, the largest ones are kept whole; what lies
// below the normal numbers is flushed.
double gcomp_error(const testing::EncodedValue& value) {
  const std::string spec = value.codec.spec();
  const std::size_t at = spec.find("cut=") + 4;
  const int bits = std::isdigit(static_cast<unsigned char>(spec[at])) != 0 ? std::stoi(spec.substr(at)) : 0;
  const bool cuttable = bits > 0 && std::fabs(value.x()) < 0x1p127;
  const double cut = cuttable ? std::ldexp(std::fabs(value.x()), bits - 24) : 0;
  if (std::fabs(value.x()) < 0x1p-126 && !value.codec.info().lossless) return 0x1p-126;
  return cut + rounding_error(spec, std::fabs(value.x()));
}

const testing::Expects kExpects{{
    .codec = "gcomp",
    .error_bound = gcomp_error,
    .tiny_signs = {0, 0, 0, 0},
    .skips_zeros = true,
    .limits = {"gcomp:cut=0", "gcomp:cut=12"},
    .refused = {"cut=1", "cut=24", "cut=06", "lossless=yes", "levels=2", "cut=6,levels=4",
                "levels=4,lossless=on", "lossless=on,cut=6", "cut=auto,lossless=on"},
}};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

// `significance`: one number for each value, or none at all.
std::vector<float> significant_round_trip(std::string_view spec, const std::vector<float>& values,
                                          const std::vector<float>& significance) {
  const auto codec = codec_of(spec);
  TensorView part{values.data(), values.size(), DType::kF32};
  part.significance = significance.empty() ? nullptr : significance.data();
  const Encoded encoded = *testing::encode_view(*codec, part);
  return *testing::decode(*codec, encoded.view(), values.size());
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
  EXPECT_EQ(make_codec("gcomp:cut=6,levels=4").error().message,
            "gcomp: levels=4 together with cut=6: levels are those of cut=auto; leave one out");
  EXPECT_EQ(codec_of("gcomp:values=bf16")->spec(), "gcomp:cut=auto,levels=8,lossless=off,values=bf16");
  EXPECT_EQ(codec_of("gcomp:cut=6,values=fp32")->spec(), "gcomp:cut=6,levels=8,lossless=off");
  EXPECT_EQ(codec_of("gcomp:values=fp16,lossless=on")->spec(),
            "gcomp:cut=0,levels=8,lossless=on,values=fp16");
  EXPECT_FALSE(codec_of("gcomp:lossless=on,values=fp16")->info().lossless);  // it rounds float32 first
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

TEST(Gcomp, InfoSaysWhichSpecsAreOfHalves) {
  EXPECT_TRUE(codec_of("gcomp")->info().half_form);
  EXPECT_TRUE(codec_of("gcomp:cut=6")->info().half_form);
  EXPECT_TRUE(codec_of("gcomp:lossless=on")->info().half_form);
  for (const char* spec : {"gcomp:values=bf16", "gcomp:cut=6,values=fp16", "gcomp:lossless=on,values=bf16"}) {
    EXPECT_FALSE(codec_of(spec)->info().half_form) << spec;
  }
  EXPECT_TRUE(codec_of("gcomp:values=bf16")->info().significance);
  EXPECT_FALSE(codec_of("gcomp:cut=0,values=bf16")->info().significance);
}

// Any bits, and the borders of binary16.
std::vector<float> values_of_all_kinds() {
  CounterRng random(21);
  std::vector<float> values(70000);
  for (float& value : values) value = from_bits(static_cast<std::uint32_t>(random.next()));
  for (std::size_t i = 0; i < values.size(); i += 2) {  // between 2^-26 and 2^16, with ties of both types
    const auto draw = static_cast<std::uint32_t>(random.next());
    const std::uint32_t exponent = 101 + draw % 43;
    values[i] = from_bits((draw & 0x807FFFFF) >> 12 << 12 | exponent << 23);
  }
  const float borders[] = {65504,    65519.99F,       65520, -65536, 0x1p-14F,    0x1.ffcp-15F, 0x1p-24F,
                           0x1p-25F, 0x1.000002p-25F, kInf,  -kInf,  0x1.fep127F, -0x1.ffp127F, 0.0F,
                           -0.0F};
  std::copy(std::begin(borders), std::end(borders), values.begin());
  return values;
}

// The values that 16 bits hold are the nearest, the largest where that is infinite; only a NaN's payload is
// lost and, unless lossless, -0 and what is below float32's normal numbers.
TEST(Gcomp, ValuesAreRoundedToHalves) {
  const std::vector<float> values = values_of_all_kinds();
  const FloatEnvironment environment;
  for (const std::string spec : {"gcomp:values=bf16", "gcomp:values=fp16", "gcomp:lossless=on,values=bf16",
                                 "gcomp:lossless=on,values=fp16"}) {
    const bool bf16 = spec.ends_with("bf16");
    const bool lossless = spec.find("lossless") != std::string::npos;
    const auto back = round_trip(spec, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint32_t bits = bits_of(values[i]);
      float expected = from_bits(bf16 ? bits_of_bf16(bf16_of(bits)) : bits_of_f16(f16_of(bits)));
      const float most = bf16 ? 0x1.fep127F : 65504.0F;
      if (std::isinf(expected) && !std::isinf(values[i])) expected = std::copysign(most, values[i]);
      if (!lossless && std::fabs(expected) < std::numeric_limits<float>::min()) expected = 0;
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(back[i])) << i;
      } else {
        ASSERT_EQ(bits_of(back[i]), bits_of(expected)) << spec << " " << values[i];
      }
    }
  }
}

// Every number of 16 bits, payloads of NaN too, among many that are alike and in a part of its own.
TEST(Gcomp, LosslessHalvesKeepEveryBit) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const auto codec =
        codec_of(dtype == DType::kBF16 ? "gcomp:lossless=on,values=bf16" : "gcomp:lossless=on,values=fp16");
    for (const std::size_t alike : {0U, 200000U}) {
      std::vector<std::uint16_t> halves(alike, 0x3C01);
      for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        halves.push_back(static_cast<std::uint16_t>(bits));
      }
      const auto part = testing::encode_view(*codec, {halves.data(), halves.size(), dtype}, {});
      const auto back = *testing::decode(*codec, part->view(), halves.size());
      std::vector<float> expected(halves.size());
      widen(halves.data(), dtype, halves.size(), expected.data());
      EXPECT_TRUE(same_bits(back, expected));
    }
  }
}

// Differences of numbers in [0.5, 1), multiples of 2^-24, and what has no level.
std::vector<float> differences(std::size_t count) {
  CounterRng random(8);
  std::vector<float> values(count);
  for (float& value : values) {
    const auto draw = static_cast<float>(random.next_uniform());
    value =
        (0.5F + 0.4F * draw) - (0.5F + 0.4F * draw * (1 + 0.001F * static_cast<float>(random.next() % 8)));
  }
  values[0] = kInf;
  values[1] = from_bits(0xFF800001);
  values[2] = std::numeric_limits<float>::max();
  values[3] = 0x1p100F;
  values[4] = 0x1p120F;
  return values;
}

TEST(Gcomp, LosslessLeavesOutLowZeros) {
  for (const std::size_t count : {1024U, 5000U, 262144U + 40000U}) {
    std::vector<float> values = differences(count);
    const auto bits = [&] {
      const auto part = *testing::encode(*codec_of("gcomp:lossless=on"), values);
      EXPECT_TRUE(same_bits(*testing::decode(*codec_of("gcomp:lossless=on"), part.view(), count), values));
      return 8.0 * static_cast<double>(part.payload.size()) / static_cast<double>(count);
    };
    EXPECT_LT(bits(), 19) << count;
    // A tiny value needs a whole chunk, of which the long part has another.
    values[5] = -0.0F;
    EXPECT_GT(bits(), count > 262144 ? 22 : 24) << count;
    std::vector<float> residual(count, 0.0F);
    values[5] = values[1] = 1.0F;
    const auto part = *testing::encode(*codec_of("gcomp:lossless=on"), values, residual);
    EXPECT_TRUE(same_bits(*testing::decode(*codec_of("gcomp:lossless=on"), part.view(), count), values));
  }
  // Too few, and none that gains half a bit.
  EXPECT_GT(testing::encode(*codec_of("gcomp:lossless=on"), differences(1023))->payload.size(), 3 * 1023U);
  std::vector<float> sparse(50000, 0.0F);
  for (std::size_t i = 0; i < sparse.size(); i += 200) sparse[i] = 1;
  const auto part = *testing::encode(*codec_of("gcomp:lossless=on"), sparse);
  EXPECT_EQ(std::to_integer<int>(part.payload[0]) & 3, 2);
}

// Through blocks and chunks: each element has its own residual.
TEST(Gcomp, ResidualsOfLargePartsAddUp) {
  constexpr std::size_t kCount = 262144 + 32768 + 5;
  const std::vector<float> values = testing::normal_values(kCount, 11);
  for (const char* spec : {"gcomp:cut=12", "gcomp:values=bf16", "gcomp:cut=18,values=bf16",
                           "gcomp:cut=18,values=fp16", "gcomp:lossless=on,values=fp16"}) {
    std::vector<float> residual = testing::normal_values(kCount, 12);
    std::vector<float> x(kCount);
    for (std::size_t i = 0; i < kCount; ++i) x[i] = values[i] + residual[i];
    const auto codec = codec_of(spec);
    const auto part = *testing::encode(*codec, values, residual);
    const auto back = *testing::decode(*codec, part.view(), kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(static_cast<double>(back[i]) + static_cast<double>(residual[i]), x[i]) << spec << " " << i;
    }
  }
}

// bfloat16's 8 bits of sign and mantissa, and the entropy of the exponents: less than two bits and a half.
TEST(Gcomp, HalvesTakeTwoThirds) {
  const std::vector<float> values = testing::normal_values(300000, 13);
  const auto bits = [&](std::string_view spec) {
    const auto part = *testing::encode(*codec_of(spec), values);
    return 8.0 * static_cast<double>(part.payload.size()) / static_cast<double>(values.size());
  };
  for (const std::string lossless : {"", "lossless=on,"}) {
    EXPECT_LT(bits("gcomp:" + lossless + "values=bf16"), 0.67 * 16);
    EXPECT_LT(bits("gcomp:" + lossless + "values=fp16"), 0.86 * 16);
  }
}

constexpr float kMax = std::numeric_limits<float>::max();

// Low bits that gcomp drops of numbers with the exponent of `power`, a power of two, next to the significance
// `num`: the lowest bit of the mantissa that one of them keeps.
int dropped(float power, float num, std::string_view spec = "gcomp") {
  for (int bit = 0; bit < 23; ++bit) {
    const float value = from_bits(bits_of(power) | 1U << bit);
    if (significant_round_trip(spec, {value}, {num})[0] == value) return bit;
  }
  return 23;
}

// One unit in the last place of a significance: how far gcomp may move a value compared with it. 0 where it
// may not; subnormals allow less than any number could be moved by.
double unit_of(float significance) {
  if (std::isinf(significance)) return kInf;
  if (!(std::fabs(significance) >= std::numeric_limits<float>::min())) return 0;
  return std::ldexp(1.0, std::ilogb(significance) - 23);
}

// A slow reading of the rule, in double, where all of it is exact.
float slow_cut(float g, float num, int step = 3) {
  if (!std::isfinite(g)) return g;
  if (std::fabs(g) < 0x1p-126F) return 0;
  const int exponent = std::ilogb(g);
  for (int n = step == 3 ? 21 : 18; n > 0; n -= step) {
    if (exponent == 127 || !(std::fabs(static_cast<double>(num)) >= std::ldexp(1.0, exponent + n - 1)))
      continue;
    const double steps = std::ldexp(static_cast<double>(g), 23 - n - exponent);
    return static_cast<float>(std::ldexp(std::nearbyint(steps), exponent + n - 23));
  }
  return g;
}

// Values of all kinds, and significances of which half are close to where a level begins.
struct Pairs {
  std::vector<float> values;
  std::vector<float> significance;
};

Pairs random_pairs(std::size_t count, CounterRng& random) {
  Pairs pairs{std::vector<float>(count), std::vector<float>(count)};
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = static_cast<std::uint32_t>(random.next());
    // A third of them with low bits that are a tie, or next to one.
    const std::uint32_t tie = 4U << (random.next() % 7 * 3);
    const auto near = static_cast<std::uint32_t>(random.next() % 3);
    pairs.values[i] = from_bits(random.next() % 3 == 0 ? (bits & ~(2 * tie - 1)) + tie - 1 + near : bits);
    const float power = from_bits(bits & 0x7F800000U);
    const float boundary = std::ldexp(power, static_cast<int>(random.next() % 24));
    const float below = std::nextafter(boundary, 0.0F);
    const float drawn[] = {boundary, below, -boundary, from_bits(static_cast<std::uint32_t>(random.next()))};
    pairs.significance[i] = drawn[random.next() % 4];
  }
  return pairs;
}

void expect_levels(std::string_view spec, int step, int most) {
  for (int n = step; n <= most; n += step) {
    const float boundary = std::ldexp(1.0F, n - 1);
    EXPECT_EQ(dropped(1, std::nextafter(boundary, 0.0F), spec), n - step) << n;
    EXPECT_EQ(dropped(1, boundary, spec), n) << n;
    EXPECT_EQ(dropped(-1, boundary, spec), n) << n;
    EXPECT_EQ(dropped(1, -boundary, spec), n) << n;
    EXPECT_EQ(dropped(-1, std::nextafter(-boundary, 0.0F), spec), n - step) << n;
  }
}

TEST(GcompRounding, LevelsChangeAtPowersOfTwo) {
  expect_levels("gcomp", 3, 21);
  expect_levels("gcomp:levels=4", 6, 18);
  EXPECT_EQ(dropped(1, kInf, "gcomp:levels=4"), 18);
}

TEST(GcompRounding, LevelsOfSpecialSignificances) {
  EXPECT_EQ(dropped(1, 0), 0);
  EXPECT_EQ(dropped(1, -0.0F), 0);
  EXPECT_EQ(dropped(1, 0x1p-140F), 0);
  EXPECT_EQ(dropped(1, kNan), 0);
  EXPECT_EQ(dropped(1, -kNan), 0);
  EXPECT_EQ(dropped(1, from_bits(0x7F800001)), 0);
  EXPECT_EQ(dropped(1, kInf), 21);
  EXPECT_EQ(dropped(1, -kInf), 21);
  EXPECT_EQ(dropped(0x1p126F, kInf), 21);  // 2^20 times that is no float, infinity is still greater
  EXPECT_EQ(dropped(0x1p126F, kMax), 0);
  EXPECT_EQ(dropped(0x1p122F, kMax), 6);
  EXPECT_EQ(dropped(0x1p123F, kMax), 3);
  EXPECT_EQ(dropped(0x1p-126F, 0x1p-109F), 18);
  EXPECT_EQ(dropped(0x1p-126F, 0x1p-110F), 15);
  EXPECT_EQ(dropped(0x1p-126F, 0x1p-127F), 0);
}

TEST(GcompRounding, SpecialGradientsWithASignificance) {
  const std::vector<float> values = {
      kNan, from_bits(0x7F800001), from_bits(0xFFFFFFFF), kInf, -kInf, 0x1p-127F, -0x1p-149F, 0.0F, -0.0F};
  const std::vector<float> significance(values.size(), kInf);
  const auto back = significant_round_trip("gcomp", values, significance);
  // NaN and Inf are never cut: a NaN could turn into Inf.
  EXPECT_TRUE(testing::same_bits(std::span(back).first(5), std::span(values).first(5)));
  for (std::size_t i = 5; i < values.size(); ++i) EXPECT_EQ(bits_of(back[i]), 0U) << i;
  // The largest subnormal isn't rounded up to a normal number.
  EXPECT_EQ(bits_of(significant_round_trip("gcomp", {from_bits(0x007FFFFF)}, {kInf})[0]), 0U);
  EXPECT_EQ(bits_of(round_trip("gcomp:cut=18", {from_bits(0x807FFFFF)})[0]), 0U);
}

TEST(GcompRounding, TiesGoToEvenAndCarriesIntoTheExponent) {
  const auto cut_18 = [](std::uint32_t bits) {
    const auto uniform = bits_of(round_trip("gcomp:cut=18", {from_bits(bits)})[0]);
    const auto four = significant_round_trip("gcomp:levels=4", {from_bits(bits)}, {kInf});
    EXPECT_EQ(bits_of(four[0]), uniform);
    return uniform;
  };
  EXPECT_EQ(cut_18(0x3F81FFFF), 0x3F800000U);
  EXPECT_EQ(cut_18(0x3F820000), 0x3F800000U);  // half a step above an even number of steps
  EXPECT_EQ(cut_18(0x3F820001), 0x3F840000U);
  EXPECT_EQ(cut_18(0x3F860000), 0x3F880000U);  // above an odd one
  EXPECT_EQ(cut_18(0xBF860000), 0xBF880000U);
  EXPECT_EQ(cut_18(0x3FFDFFFF), 0x3FFC0000U);
  EXPECT_EQ(cut_18(0x3FFE0000), 0x40000000U);  // 1.98... becomes 2
  EXPECT_EQ(cut_18(0x00FFFFFF), 0x01000000U);
  EXPECT_EQ(cut_18(0x7EFFFFFF), 0x7F000000U);  // the last exponent to which a carry may go
}

// Rounding the highest exponent could give Inf: it is kept whole.
TEST(GcompRounding, NothingFiniteBecomesInfinite) {
  for (const float value :
       {kMax, -kMax, from_bits(0x7F000000), from_bits(0x7F020001), from_bits(0xFF7E0000)}) {
    EXPECT_EQ(bits_of(significant_round_trip("gcomp", {value}, {kInf})[0]), bits_of(value));
    for (const char* spec : {"gcomp:cut=6", "gcomp:cut=12", "gcomp:cut=18"}) {
      EXPECT_EQ(bits_of(round_trip(spec, {value})[0]), bits_of(value)) << spec;
    }
  }
}

// As the rule has it, with exponents from `whole` on kept whole.
float cut_of_float16(float value, int low_bits, int whole) {
  if (value == 0) return 0;
  const int exponent = std::ilogb(value);
  if (exponent >= whole) return value;
  const double steps = std::ldexp(static_cast<double>(value), 23 - low_bits - exponent);
  return static_cast<float>(std::ldexp(std::nearbyint(steps), exponent + low_bits - 23));
}

// A spec, the low bits that it cuts of float16 values with these significances, and the factor between them.
struct CutOfFloat16 {
  const char* spec;
  int low_bits = 0;
  int seen = -1;  // a significance is a value times 2^seen; below 0: none
};
constexpr CutOfFloat16 kCutsOfFloat16[] = {
    {"gcomp:cut=6", 0},
    {"gcomp:cut=12", 0},
    {"gcomp:cut=18", 18},
    {"gcomp", 0},
    {"gcomp", 15, 14},
    {"gcomp", 21, 40},
    {"gcomp:levels=4", 12, 15},
    {"gcomp:levels=4", 18, 17},
    {"gcomp:values=fp16", 0},
    {"gcomp:cut=12,values=fp16", 0},
    {"gcomp:cut=18,values=fp16", 18},
    {"gcomp:values=fp16", 14, 13},
    {"gcomp:values=fp16", 20, 40},
    {"gcomp:levels=4,values=fp16", 19, 40},
};

// Every finite number: a carry from the highest exponent would give 65,536, which no float16 is. One below
// may go there.
TEST(GcompRounding, NoFloat16LeavesItsRange) {
  std::vector<std::uint16_t> halves;
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    if ((half & 0x7C00) != 0x7C00) halves.push_back(static_cast<std::uint16_t>(half));
  }
  std::vector<float> values(halves.size());
  {
    const FloatEnvironment environment;
    widen(halves.data(), DType::kF16, halves.size(), values.data());
  }
  for (const CutOfFloat16& each : kCutsOfFloat16) {
    std::vector<float> significance = values;
    for (float& value : significance) value = std::ldexp(value, each.seen);
    const auto check = [&](const std::string& spec, TensorView part, int whole) {
      SCOPED_TRACE(spec + " " + std::to_string(each.seen));
      part.significance = each.seen < 0 ? nullptr : significance.data();
      const auto codec = codec_of(spec);
      const auto back = *testing::decode(*codec, testing::encode_view(*codec, part)->view(), values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_LE(std::fabs(back[i]), 65504.0F) << "of " << values[i];
        ASSERT_EQ(bits_of(back[i]), bits_of(cut_of_float16(values[i], each.low_bits, whole)))
            << "of " << values[i];
      }
    };
    check(each.spec, {halves.data(), halves.size(), DType::kF16}, 15);
    TensorView sum{values.data(), values.size(), DType::kF32};
    sum.summed_dtype = DType::kF16;
    check(each.spec, sum, 11);
  }
}

// Sums of float16 values may lie beyond; their means would, too, if they were rounded. Other tensors of
// float32 have no such range, whatever they are rounded to first.
TEST(GcompRounding, SumsOfFloat16KeepTheirMeansInRange) {
  const testing::Floats sums{131008.0F, -1048064.0F, 32752.0F};
  for (const char* spec : {"gcomp:cut=18", "gcomp:cut=18,values=fp16"}) {
    const auto codec = codec_of(spec);
    TensorView sum{sums.data(), sums.size(), DType::kF32};
    sum.summed_dtype = DType::kF16;
    const bool rounds = codec->spec().ends_with("fp16");
    const testing::Floats kept{rounds ? 65504.0F : sums[0], rounds ? -65504.0F : sums[1], 32752.0F};
    EXPECT_EQ(*testing::decode(*codec, testing::encode_view(*codec, sum)->view(), sums.size()), kept) << spec;
    EXPECT_EQ(round_trip(spec, {65504.0F})[0], 65536.0F) << spec;
  }
}

TEST(GcompRounding, UniformCutRoundsToNearestAndIgnoresSignificance) {
  std::vector<float> values = testing::normal_values(20000, 4);
  for (std::size_t i = 0; i < values.size(); i += 3)
    values[i] = from_bits((bits_of(values[i]) | 0x3F) + 0x20);
  for (const int n : {6, 12, 18}) {
    const std::string spec = "gcomp:cut=" + std::to_string(n);
    const auto back = significant_round_trip(spec, values, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(bits_of(back[i]), bits_of(slow_cut(values[i], std::ldexp(values[i], n)))) << spec << " " << i;
    }
    const auto nans = round_trip(spec, {from_bits(0x7F800001), kNan, -kInf});
    EXPECT_EQ(bits_of(nans[0]), 0x7F800001U);
    EXPECT_TRUE(std::isnan(nans[1]));
    EXPECT_EQ(nans[2], -kInf);
  }
}

PROPERTY(GcompRounding, IsTheRule) {
  CounterRng random(testing::drawn_word());
  const Pairs pairs = random_pairs(testing::drawn(1, 3000), random);
  for (const int step : {3, 6}) {
    const auto back =
        significant_round_trip(step == 3 ? "gcomp" : "gcomp:levels=4", pairs.values, pairs.significance);
    for (std::size_t i = 0; i < back.size(); ++i) {
      HOLDS(bits_of(back[i]) == bits_of(slow_cut(pairs.values[i], pairs.significance[i], step)));
      // What it promises: a value moves by one unit of its significance at most.
      const double value = pairs.values[i];
      const bool flushed = !std::isfinite(value) || std::fabs(value) < 0x1p-126;
      HOLDS(flushed || std::fabs(value - double{back[i]}) <= unit_of(pairs.significance[i]));
    }
  }
}

// Through several blocks and chunks, of which no two have the same significances in the same places.
TEST(GcompRounding, EachElementHasItsOwnSignificance) {
  CounterRng random(21);
  for (const std::size_t count : {16385U, 32769U, 262144U + 2 * 32768U + 7U}) {
    const std::vector<float> values = testing::normal_values(count, count);
    std::vector<float> significance(count);
    for (float& number : significance) number = std::ldexp(1.0F, static_cast<int>(random.next() % 24));
    const auto back = significant_round_trip("gcomp", values, significance);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(bits_of(back[i]), bits_of(slow_cut(values[i], significance[i])))
          << count << ", element " << i;
    }
  }
}

struct Input {
  std::vector<float> values;
  std::vector<float> significance;
  std::vector<float> residual;
};

// Of all modes: blocks of zeros, of random bits (stored) and of ordinary values.
Input input_of(std::size_t count) {
  CounterRng random(count);
  Input input{std::vector<float>(count), std::vector<float>(count), std::vector<float>(count)};
  for (std::size_t i = 0; i < count; ++i) {
    const auto noise = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()) & 0xBFFFFFFF);
    const auto ordinary = static_cast<float>(random.next_uniform() - 0.5);
    const std::size_t kind = i / 32768 % 3;
    input.values[i] = kind == 0 ? ordinary : kind == 1 ? noise : 0.0F;
    input.significance[i] = static_cast<float>(1e6 * random.next_uniform());
    input.residual[i] = kind == 2 ? 0.0F : 1e-3F * ordinary;
  }
  return input;
}

struct Outcome {
  std::vector<std::byte> payload;
  std::vector<std::uint32_t> chunk_ends;
  std::vector<std::uint32_t> chunk_sums;
  std::vector<float> residual;
  bool operator==(const Outcome&) const = default;
};

Outcome encode(const Codec& codec, const Input& input, bool with_residual, Workers* workers = nullptr) {
  TensorView part{input.values.data(), input.values.size(), DType::kF32};
  part.significance = input.significance.data();
  const Sizes sizes = codec.sizes(part);
  Outcome outcome{std::vector<std::byte>(sizes.payload_bytes), std::vector<std::uint32_t>(sizes.chunks),
                  std::vector<std::uint32_t>(sizes.chunks),
                  with_residual ? input.residual : std::vector<float>{}};
  std::vector<std::byte> scratch(sizes.scratch_bytes);
  const auto encoded =
      codec
          .encode(part, outcome.residual, {outcome.payload, outcome.chunk_ends, outcome.chunk_sums},
                  {0, scratch, workers})
          .value();
  outcome.payload.resize(encoded.payload_bytes);
  EXPECT_EQ(encoded.has_sums, input.values.size() > 32768);
  if (!encoded.has_sums) return outcome;
  std::uint32_t begin = 0;
  for (std::size_t i = 0; i < outcome.chunk_ends.size(); ++i) {
    const std::uint32_t bytes = outcome.chunk_ends[i] - begin;
    EXPECT_EQ(outcome.chunk_sums[i], crc32c(Bytes(outcome.payload).subspan(begin, bytes))) << i;
    begin = outcome.chunk_ends[i];
  }
  return outcome;
}

class GcompThreads : public ::testing::TestWithParam<int> {};

TEST_P(GcompThreads, ChangeNoByteAndNoValue) {
  Workers workers(GetParam());
  for (const char* spec : {"gcomp", "gcomp:cut=12", "gcomp:lossless=on"}) {
    const auto codec = codec_of(spec);
    for (const std::size_t count : {1U, 32768U, 32769U, 262144U, 262145U, 300001U}) {
      const Input input = input_of(count);
      const Outcome alone = encode(*codec, input, true);
      const PartView view{alone.payload, alone.chunk_ends, 0};
      std::vector<float> one(count, 0.25F);
      std::vector<float> shared = one;
      ASSERT_TRUE(codec->decode(view, {one.data(), count, DType::kF32}, Into::kAccumulate, 0.5F));
      ASSERT_TRUE(encode(*codec, input, true, &workers) == alone) << spec << ", " << count;
      ASSERT_TRUE(codec->decode(view, {shared.data(), count, DType::kF32}, Into::kAccumulate, 0.5F,
                                {.workers = &workers}));
      ASSERT_EQ(std::memcmp(one.data(), shared.data(), 4 * count), 0) << spec << ", " << count;
    }
  }
}

TEST_P(GcompThreads, NameTheSameFault) {
  constexpr std::size_t kCount = 5 * 32768;
  Workers workers(GetParam());
  const auto codec = codec_of("gcomp");
  const Outcome good = encode(*codec, input_of(kCount), false);
  CounterRng random(7);
  std::vector<float> slot(kCount);
  int faults = 0;
  for (int trial = 0; trial < 300; ++trial) {
    Outcome bad = good;
    // Two places, so that blocks before and behind one another are broken.
    for (int i = 0; i < 2; ++i) {
      bad.payload[random.next() % bad.payload.size()] ^= static_cast<std::byte>(1U << random.next() % 8);
    }
    const PartView view{bad.payload, bad.chunk_ends, 0};
    const TensorSlot into{slot.data(), kCount, DType::kF32};
    const Status alone = codec->decode(view, into, Into::kOverwrite, 1);
    const Status shared = codec->decode(view, into, Into::kOverwrite, 1, {.workers = &workers});
    ASSERT_EQ(alone.has_value(), shared.has_value()) << trial;
    if (alone) continue;
    ++faults;
    ASSERT_EQ(alone.error().message, shared.error().message) << trial;
  }
  EXPECT_GT(faults, 50);
}

INSTANTIATE_TEST_SUITE_P(Threads, GcompThreads, ::testing::Values(2, 3, 16));

// Its bytes go past the caches, and are summed before.
TEST(GcompSums, OfALargePartAreThoseOfItsBytes) {
  const Input input = input_of((std::size_t{4} << 20) + 40000);
  for (const char* spec : {"gcomp", "gcomp:cut=12"}) encode(*codec_of(spec), input, false);
}

// Chunks of zeros alone, of random bits alone and of both have no table.
TEST(GcompSums, OfChunksWithoutATableAreThoseOfTheirBytes) {
  Workers workers(2);
  for (const int kind : {0, 1, 2}) {
    Input input = input_of(262144);
    CounterRng random(5);
    for (std::size_t i = 0; i < input.values.size(); ++i) {
      const bool zero = kind == 0 || (kind == 2 && i / 32768 % 2 == 0);
      const auto noise = static_cast<std::uint32_t>(random.next()) & 0xBFFFFFFF;
      input.values[i] = zero ? 0.0F : std::bit_cast<float>(noise);
    }
    ASSERT_TRUE(encode(*codec_of("gcomp"), input, false) ==
                encode(*codec_of("gcomp"), input, false, &workers));
  }
}

}  // namespace
}  // namespace deltawire::gcomp_test
