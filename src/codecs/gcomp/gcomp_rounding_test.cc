// Which low bits gcomp drops, and how far that moves a value: levels, rounding, the error bound
// (spec.md, 6.2).
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/property_testing.h"
#include "base/random.h"
#include "codecs/gcomp/gcomp_testing.h"

namespace deltawire::gcomp_rounding_test {
namespace {

using testing::bits_of;
using testing::significant_round_trip;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();

float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

std::vector<float> round_trip(std::string_view spec, const std::vector<float>& values) {
  return significant_round_trip(spec, values, {});
}

// Low bits that gcomp drops of numbers with the exponent of `power`, a power of two, beside the significance
// `num`: the lowest bit of the mantissa that one of them keeps.
int dropped(float power, float num, std::string_view spec = "gcomp") {
  for (int bit = 0; bit < 23; ++bit) {
    const float value = from_bits(bits_of(power) | 1U << bit);
    if (significant_round_trip(spec, {value}, {num})[0] == value) return bit;
  }
  return 23;
}

// One unit in the last place of a significance: how far gcomp may move what stands beside it. 0 where it may
// not; subnormals allow less than any number could be moved by.
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

// The bound of one encoding, element by element: |g - g'| is at most one unit in the last place of the
// significance, and so at most 2^-23 |significance|; what is below the normal numbers becomes 0.
PROPERTY(GcompRounding, MovesAValueByOneUnitOfItsSignificanceAtMost) {
  CounterRng random(testing::drawn_word());
  const Pairs pairs = random_pairs(testing::drawn(1, 3000), random);
  const auto back = significant_round_trip("gcomp", pairs.values, pairs.significance);
  for (std::size_t i = 0; i < back.size(); ++i) {
    const double g = pairs.values[i];
    if (!std::isfinite(g)) continue;
    HOLDS(std::isfinite(back[i]));
    const double error = std::fabs(g - static_cast<double>(back[i]));
    const double flushed = std::fabs(g) < 0x1p-126 ? std::fabs(g) : 0;
    HOLDS(error <= std::max(unit_of(pairs.significance[i]), flushed));
    const double significance = std::fabs(static_cast<double>(pairs.significance[i]));
    HOLDS(flushed > 0 || error == 0 || error <= 0x1p-23 * significance);
  }
}

TEST(GcompRounding, TheBoundIsReached) {
  // Half a step of level 2 at exponent 0 is 2^-18, one unit of 32.
  EXPECT_EQ(significant_round_trip("gcomp", {1 + 0x1p-18F}, {32})[0], 1.0F);
  EXPECT_EQ(significant_round_trip("gcomp", {1 + 3 * 0x1p-18F}, {32})[0], 1 + 4 * 0x1p-18F);
}

// Over all low bits of two neighbours, errors cancel exactly: no bias, whatever the level and the sign.
TEST(GcompRounding, HasNoBias) {
  for (const int n : {6, 12}) {
    const std::size_t count = std::size_t{2} << n;
    for (const std::uint32_t high : {0x3F800000U, 0xBF800000U, 0x00800000U, 0x3FFFE000U, 0x78FFE000U}) {
      std::vector<float> values(count);
      double sum = 0;
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = from_bits(high + static_cast<std::uint32_t>(i));
        sum += static_cast<double>(values[i]);
      }
      const float seen = std::ldexp(1.0F, std::ilogb(values[0]) + n - 1);
      for (const auto& back : {significant_round_trip("gcomp", values, std::vector<float>(count, seen)),
                               round_trip("gcomp:cut=" + std::to_string(n), values)}) {
        EXPECT_NE(back, values);
        double sum_back = 0;
        for (const float value : back) sum_back += static_cast<double>(value);
        EXPECT_EQ(sum_back, sum) << std::hex << high << " " << n;
      }
    }
  }
}

}  // namespace
}  // namespace deltawire::gcomp_rounding_test
