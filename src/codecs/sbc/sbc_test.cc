// What sbc means: which elements are sent, the mean, residuals, errors. The bytes are in sbc_bytes_test.cc.
#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "base/property_testing.h"
#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sbc_test {
namespace {

using namespace testing;

// The order of summation of spec.md, section 5, by the places of the values alone.
double tree_sum(const std::vector<double>& values) {
  double total = 0;
  for (std::size_t block = 0; block < values.size(); block += 4096) {
    std::vector<double> lanes(64, 0.0);
    for (std::size_t j = block; j < std::min(values.size(), block + 4096); ++j) lanes[j % 64] += values[j];
    while (lanes.size() > 1) {
      const std::size_t half = lanes.size() / 2;
      for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
      lanes.resize(half);
    }
    total += lanes[0];
  }
  return total;
}

// One sign's part of the update, found by sorting.
struct Side {
  std::vector<std::size_t> positions;
  double mean = 0;
};

Side slow_side(const Floats& x, std::size_t keep, float sign) {
  Side side;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] * sign > 0) side.positions.push_back(i);
  }
  std::sort(side.positions.begin(), side.positions.end(), [&](std::size_t a, std::size_t b) {
    return std::fabs(x[a]) > std::fabs(x[b]) || (std::fabs(x[a]) == std::fabs(x[b]) && a < b);
  });
  side.positions.resize(std::min(keep, side.positions.size()));
  std::sort(side.positions.begin(), side.positions.end());
  std::vector<double> values;
  values.reserve(side.positions.size());
  for (const std::size_t i : side.positions) values.push_back(std::fabs(x[i]));
  if (!values.empty()) side.mean = tree_sum(values) / static_cast<double>(values.size());
  return side;
}

// The dense update that sbc sends of x.
Floats slow_update(const Floats& x, std::size_t keep) {
  const Side positive = slow_side(x, keep, 1);
  const Side negative = slow_side(x, keep, -1);
  const bool up = positive.mean >= negative.mean;
  Floats update(x.size(), 0.0F);
  for (const std::size_t i : (up ? positive : negative).positions) {
    update[i] = up ? static_cast<float>(positive.mean) : -static_cast<float>(negative.mean);
  }
  return update;
}

std::size_t keep_of(double p, std::size_t count) {
  return std::max<std::size_t>(1, static_cast<std::size_t>(std::floor(p * static_cast<double>(count) + 0.5)));
}

Floats round_trip(std::string_view spec, const Floats& values, std::span<float> residual = {}) {
  const auto codec = codec_of(spec);
  const auto part = testing::encode(*codec, values, residual);
  if (!part) throw std::runtime_error(part.error().message);
  return *testing::decode(*codec, part->view(), values.size());
}

TEST(Sbc, SendsTheMeanOfTheLargestOfOneSign) {
  EXPECT_EQ(round_trip("sbc:p=0.5", {1, 2, 3, 4}), (Floats{0, 0, 3.5F, 3.5F}));
  EXPECT_EQ(round_trip("sbc:p=0.5", {-1, -2, -3, -4}), (Floats{0, 0, -3.5F, -3.5F}));
  EXPECT_EQ(round_trip("sbc:p=0.25", {1, -2, 3, -4, 5, -6, 7, -8}), (Floats{0, 0, 0, 0, 0, -7, 0, -7}));
  EXPECT_EQ(round_trip("sbc:p=0.25", {1, -2, 3, -4, 9, -6, 7, -8}), (Floats{0, 0, 0, 0, 8, 0, 8, 0}));
}

TEST(Sbc, EqualMeansTakeThePositiveSide) {
  EXPECT_EQ(round_trip("sbc:p=0.25", {-2, 2, 0, 0}), (Floats{0, 2, 0, 0}));
  EXPECT_EQ(round_trip("sbc:p=0.5", {-3, 2, -1, 2}), (Floats{0, 2, 0, 2}));
  const float above = std::nextafter(2.0F, 3.0F);
  EXPECT_EQ(round_trip("sbc:p=0.25", {-above, 2, 0, 0}), (Floats{-above, 0, 0, 0}));
}

TEST(Sbc, ZerosAndOneElement) {
  for (const std::size_t count : {1U, 2U, 100U}) {
    Floats residual(count, -0.0F);
    for (const float value : round_trip("sbc", Floats(count, 0.0F), residual)) EXPECT_EQ(bits_of(value), 0U);
    for (const float value : residual) EXPECT_EQ(value, 0);
  }
  EXPECT_EQ(testing::encode(*codec_of("sbc"), Floats(5, -0.0F))->scalar, 0U);
  EXPECT_EQ(round_trip("sbc:p=0.0001%", {-2.5F}), (Floats{-2.5F}));
  EXPECT_EQ(testing::encode(*codec_of("sbc"), Floats{-2.5F})->scalar, bits_of(-2.5F));
}

TEST(Sbc, SubnormalsAndTheLargestNumbers) {
  const float least = 0x1p-149F;
  EXPECT_EQ(round_trip("sbc:p=0.5", {least, -least, 0, least}), (Floats{least, 0, 0, least}));
  // A mean of 1.5 units is rounded to even; it can't be 0, as no value is below it that isn't.
  Floats residual(4, 0.0F);
  EXPECT_EQ(round_trip("sbc:p=0.5", {least, 2 * least, 0, 0}, residual),
            (Floats{2 * least, 2 * least, 0, 0}));
  EXPECT_EQ(residual, (Floats{-least, 0, 0, 0}));
  EXPECT_EQ(round_trip("sbc:p=0.5", {FLT_MAX, FLT_MAX, -FLT_MAX, 1}), (Floats{FLT_MAX, FLT_MAX, 0, 0}));
  EXPECT_EQ(round_trip("sbc:p=0.9", Floats(5000, -FLT_MAX))[0], -FLT_MAX);
}

// In a large part, on the side that would lose, with too many others to be held at once.
TEST(Sbc, NotFiniteIsFoundAmongManyOthers) {
  for (const float bad : {kNan, -kNan, -kInf, kInf}) {
    Floats x = testing::normal_values(200000, 3);
    for (float& value : x) value = std::fabs(value);
    x[777] = bad;
    const auto part = testing::encode(*codec_of("sbc:p=0.1%"), x);
    ASSERT_FALSE(part);
    EXPECT_EQ(part.error().message.rfind("element 777 of the input is", 0), 0U) << part.error().message;
  }
}

TEST(Sbc, MeansHaveAPOfTheirOwn) {
  EXPECT_EQ(codec_of("sbc")->mean_spec(), "sbc:p=0.01");
  EXPECT_EQ(codec_of("sbc:p=1%,positions=auto,pull=3%")->spec(), "sbc:p=0.01,positions=auto,pull=0.03");
  EXPECT_EQ(codec_of("sbc:p=1%,positions=auto,pull=3%")->mean_spec(), "sbc:p=0.03,positions=auto");
  EXPECT_EQ(codec_of("sbc:pull=p")->spec(), "sbc:p=0.01");
}

TEST(Sbc, Spec) {
  const std::pair<const char*, const char*> same[] = {
      {"sbc", "sbc:p=0.01"},          {"sbc:p=1%", "sbc:p=0.01"},    {"sbc:p=0.1%", "sbc:p=0.001"},
      {"sbc:p=1e-2", "sbc:p=0.01"},   {"sbc:p=.5%", "sbc:p=0.005"},  {"sbc:p=0.0001%", "sbc:p=0.000001"},
      {"sbc:p=99.9%", "sbc:p=0.999"}, {"sbc:p=0.0100", "sbc:p=0.01"}};
  for (const auto& [given, canonical] : same) EXPECT_EQ(codec_of(given)->spec(), canonical);
  for (const char* p :
       {"0", "1", "100%", "-1%", "1%%", "%", "nan%", "inf%", "1e1%", "0.00009%", "1 %", "x"}) {
    const auto codec = make_codec("sbc:p=" + std::string(p));
    ASSERT_FALSE(codec) << p;
    EXPECT_EQ(codec.error().message,
              "sbc: p=" + std::string(p) + " is out of range: give a number 0.000001 <= p < 1");
  }
}

// In float32 another order of the sum seldom shows, so here it is seen in float64.
TEST(Sbc, TheSumIsTheTreeOfTheSpec) {
  CounterRng random(12);
  for (const std::size_t count : {0U, 1U, 2U, 3U, 63U, 64U, 65U, 100U, 128U, 4095U, 4096U, 4097U, 8191U,
                                  8192U, 8193U, 12289U, 20000U}) {
    int differ = 0;
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<std::uint32_t> magnitudes(count);
      std::vector<double> values(count);
      for (std::size_t i = 0; i < count; ++i) {
        // About four large values, and others that vanish when added to them one by one, but not together.
        const auto small = 120 + static_cast<std::uint32_t>(random.next() % 12);
        const std::uint32_t exponent = random.next() % (count / 4 + 1) == 0 ? 180 : small;
        const auto mantissa = static_cast<std::uint32_t>(random.next()) & 0x007FFFFF;
        magnitudes[i] = exponent << 23 | mantissa;
        values[i] = std::bit_cast<float>(magnitudes[i]);
      }
      const double sum = sparse::kernels_for(TargetId::kReference).sum(magnitudes.data(), count);
      ASSERT_EQ(sum, tree_sum(values)) << count;
      differ += sum != std::accumulate(values.begin(), values.end(), 0.0) ? 1 : 0;
    }
    EXPECT_TRUE(count <= 64 || differ > 0) << "any order gives the sums of " << count;
  }
}

// By hand: 1 and 2^-24 lie halfway between two floats, and four times 2^-54 decides, if they meet before they
// meet the 1: elements 1, 65, 129 and 193 do, in lane 1, where one after another each would be lost.
TEST(Sbc, TheMeanShowsTheOrderOfTheSum) {
  Floats x(256, 0x1p-149F);
  x[0] = 1;
  x[2] = 0x1p-24F;
  for (const std::size_t i : {1U, 65U, 129U, 193U}) x[i] = 0x1p-54F;
  EXPECT_EQ(bits_of(round_trip("sbc:p=0.9999", x)[0]), bits_of((1 + 0x1p-23F) / 256));
  x[193] = 0x1p-149F;  // three are 1.5 units of the 53 bits, and still more than half of one
  EXPECT_EQ(bits_of(round_trip("sbc:p=0.9999", x)[0]), bits_of((1 + 0x1p-23F) / 256));
  x[129] = 0x1p-149F;  // two are half a unit: lost
  EXPECT_EQ(bits_of(round_trip("sbc:p=0.9999", x)[0]), bits_of(1.0F / 256));
}

// Inputs at which a selection may go wrong: sorted, equal, clustered, of wild exponents.
std::vector<Floats> awkward_inputs() {
  constexpr std::size_t kCount = 262144;
  std::vector<Floats> inputs(7, Floats(kCount));
  CounterRng random(8);
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto place = static_cast<float>(i);
    inputs[0][i] = place;
    inputs[1][i] = i % 2 == 0 ? 3e5F - place : place - 3e5F;
    inputs[2][i] = static_cast<float>(random.next() % 5) - 2;
    // Large in every eighth block of 16 alone, where samples may be taken.
    inputs[3][i] = (i / 16 % 8 == 0 ? 1000.0F : 1.0F) * (static_cast<float>(random.next() % 2001) - 1000);
    const auto bits = static_cast<std::uint32_t>(random.next());
    inputs[4][i] = std::bit_cast<float>((bits & 0x7F800000U) == 0x7F800000U ? bits & 0x807FFFFFU : bits);
    inputs[5][i] = i % 1000 == 999 ? -1.0F : 0.0F;
    // Neighbours among the floats, of both signs.
    inputs[6][i] = std::bit_cast<float>((bits & 0x80000000U) + 0x3F800000U + (bits >> 8) % 3000);
  }
  return inputs;
}

TEST(Sbc, EqualsTheSlowReferenceOnLargeInputs) {
  std::vector<Floats> inputs = awkward_inputs();
  inputs.push_back(testing::normal_values(300001, 2));
  for (std::size_t n = 0; n < inputs.size(); ++n) {
    for (const double p : {0.00001, 0.001, 0.01, 0.2, 0.9}) {
      std::string spec = "sbc:p=" + std::to_string(p);
      Floats residual(inputs[n].size(), 0.0F);
      const Floats back = round_trip(spec, inputs[n], residual);
      const Floats expected = slow_update(inputs[n], keep_of(p, inputs[n].size()));
      ASSERT_TRUE(testing::same_bits(back, expected)) << "input " << n << ", p = " << p;
      for (std::size_t i = 0; i < back.size(); ++i)
        ASSERT_EQ(residual[i], inputs[n][i] - back[i]) << n << " " << i;
    }
  }
}

// One sign's threshold says nothing about the other's: the many of one are large, of the other one is huge
// and nine are small, and these ten win.
TEST(Sbc, EachSignHasItsOwnThreshold) {
  constexpr std::size_t kCount = 20000;
  for (const float sign : {1.0F, -1.0F}) {
    Floats x(kCount);
    for (std::size_t i = 0; i < kCount; ++i) x[i] = sign * (100 + static_cast<float>(i % 7));
    for (std::size_t i = 0; i < 10; ++i) x[15000 + 160 * i] = -sign * (i == 0 ? 1e6F : 1.0F);
    const Floats back = round_trip("sbc:p=0.0005", x);
    EXPECT_EQ(std::count(back.begin(), back.end(), -sign * 100000.9F), 10) << sign;
  }
}

// Thresholds of a part of this size are guessed from samples. Here these hold all 130 of the large values, so
// that the guess is above all others, and one of the 131 is missed at first.
TEST(Sbc, AGuessThatMissesOneIsMended) {
  constexpr std::size_t kCount = 131072;
  ASSERT_EQ(sparse::sample_stride(kCount), sparse::kLeastStride);
  for (const float sign : {1.0F, -1.0F}) {
    Floats x(kCount, sign);
    for (std::size_t i = 0; i < 130; ++i) x[sparse::sampled_element(i, sparse::kLeastStride)] = 2 * sign;
    x[0] = x[1] = sign;
    const auto large = static_cast<std::size_t>(std::count(x.begin(), x.end(), 2 * sign));
    ASSERT_GE(large, 129U);
    const Floats back = round_trip("sbc:p=0.001", x);
    EXPECT_EQ(std::count(back.begin(), back.end(), 0.0F), kCount - 131);
    EXPECT_NE(back[1], 0.0F) << "the first of the others";
  }
}

// Candidates are cut down to 7 whenever they are more than 270, with a block of 1024 to come: what is held
// must not be written over. The first ones are the largest.
TEST(Sbc, MakesRoomBeforeABlock) {
  Floats x(3000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 4000 - static_cast<float>(i);
  x[0] = 0;
  const Floats back = round_trip("sbc:p=0.00233", x);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(back[i], i >= 1 && i <= 7 ? 3996.0F : 0.0F) << i;
}

PROPERTY(SbcProperty, EqualsTheSlowReference) {
  const auto words = testing::drawn_numbers();
  const auto choice = testing::drawn(0, 256);
  Floats input;
  Floats residual;
  for (const std::int32_t word : words) {
    // Half of the cases: few values, many ties; the others: all finite floats up to 2^126.
    const auto bits = static_cast<std::uint32_t>(word) * 2654435761U;
    input.push_back(choice % 2 == 0 ? static_cast<float>(word % 4)
                                    : std::bit_cast<float>(bits & 0xBEFFFFFFU));
    residual.push_back(choice % 3 == 0 ? 0.0F : static_cast<float>(word / 7 % 3));
  }
  const double shares[] = {0.01, 0.1, 0.25, 0.5, 0.75};
  const double p = shares[choice % 5];
  Floats x(input.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = input[i] + residual[i];
  const auto codec = codec_of("sbc:p=" + std::to_string(p));
  const auto part = testing::encode(*codec, input, residual);
  HOLDS(part.has_value());
  const auto back = *testing::decode(*codec, part->view(), x.size());
  HOLDS(testing::same_bits(back, slow_update(x, keep_of(p, x.size()))));
  for (std::size_t i = 0; i < x.size(); ++i)
    HOLDS(testing::same_bits(std::span(&residual[i], 1), Floats{x[i] - back[i]}));
}

}  // namespace
}  // namespace deltawire::sbc_test
