// truncate: its bits, that it cuts and doesn't round, special values, and what a decoder must refuse.
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"

namespace deltawire::truncate_test {
namespace {

using namespace testing;

constexpr const char* kOf18 = "truncate:bits=18";
constexpr int kAllBits[] = {10, 11, 14, 16, 18, 24, 29, 31};

std::string spec_of(int bits) {
  return "truncate:bits=" + std::to_string(bits);
}

int bits_kept(const Codec& codec) {
  return std::stoi(codec.spec().substr(std::string("truncate:bits=").size()));
}

// Less than the last place that is kept; of subnormals it is the same for all.
double last_place(const testing::EncodedValue& value) {
  const int bits = bits_kept(value.codec);
  return std::ldexp(std::fabs(value.x()), 9 - bits) + std::ldexp(1.0, -149 + 32 - bits);
}

// 2^-133 is below the smallest of 14 bits, and of fewer.
const testing::Expects kExpects{{
    .codec = "truncate",
    .error_bound = last_place,
    .tiny_signs = {0, 0, 0, 0},
    .refused = {"bits=9", "bits=32", "bits=0", "bits=18.0", "bits=018", "bits="},
}};
const testing::Expects kOfMore{{.codec = "truncate:bits=18", .error_bound = last_place}};
const testing::Expects kOfMost{{.codec = "truncate:bits=29", .error_bound = last_place}};
const testing::Expects kOfAll{{.codec = "truncate:bits=31", .error_bound = last_place}};
const testing::Expects kOfFewest{{.codec = "truncate:bits=10",
                                  .error_bound = last_place,
                                  .tiny_signs = {0, 0, 0, 0},
                                  .limits = {"truncate:bits=10", "truncate:bits=31"}}};

std::uint32_t coded(std::uint32_t bits, const std::string& spec) {
  const auto codec = codec_of(spec);
  const auto part = testing::encode(*codec, Floats{std::bit_cast<float>(bits)});
  return bits_of(testing::decode(*codec, part->view(), 1)->at(0));
}

TEST(Truncate, BitsLieOneAfterAnother) {
  // 1.0 is 0x3F800000, of which 18 bits are 0x0FE00; -2.5 is 0xC0200000, of which they are 0x30080.
  EXPECT_EQ(bytes_of(kOf18, {1.0F, -2.5F}), (Ints{0x00, 0xFE, 0x00, 0x02, 0x0C}));
  EXPECT_EQ(bytes_of("truncate:bits=16", {1.0F, -2.5F}), (Ints{0x80, 0x3F, 0x20, 0xC0}));
  EXPECT_EQ(bytes_of("truncate:bits=10", {-2.5F}), (Ints{0x00, 0x03}));
  EXPECT_EQ(bytes_of("truncate:bits=31", {std::bit_cast<float>(0x80000003U)}), (Ints{1, 0, 0, 0x40}));
}

TEST(Truncate, CutsTowardsZero) {
  EXPECT_EQ(coded(0x3F803FFF, kOf18), 0x3F800000U);
  EXPECT_EQ(coded(0xBFFFFFFF, kOf18), 0xBFFFC000U);
  EXPECT_EQ(coded(0x7F7FFFFF, kOf18), 0x7F7FC000U);  // never Inf
  EXPECT_EQ(coded(0x7F7FFFFF, "truncate:bits=10"), 0x7F400000U);
  EXPECT_EQ(coded(0x00004001, kOf18), 0x00004000U);
  EXPECT_EQ(coded(0x00003FFF, kOf18), 0U);
  EXPECT_EQ(coded(0x80003FFF, kOf18), 0x80000000U);
  EXPECT_EQ(coded(0x80000000, kOf18), 0x80000000U);
}

TEST(Truncate, InfStaysAndNanIsOne) {
  for (const int bits : kAllBits) {
    EXPECT_EQ(coded(0x7F800000, spec_of(bits)), 0x7F800000U) << bits;
    EXPECT_EQ(coded(0xFF800000, spec_of(bits)), 0xFF800000U) << bits;
    for (const std::uint32_t nan : {0x7F800001U, 0xFFFFFFFFU, 0xFFC00000U}) {
      EXPECT_EQ(coded(nan, spec_of(bits)), 0x7FC00000U) << bits;
    }
  }
}

// From the definition: the largest multiple of the last place that isn't farther from 0 than x.
TEST(Truncate, ValuesAndResidualsAreTheModels) {
  CounterRng random(5);
  for (const int bits : kAllBits) {
    const auto codec = codec_of(spec_of(bits));
    Floats values(501);
    for (float& value : values) {
      value = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()) & 0xBFFFFFFF);
    }
    Floats residual(values.size(), 0x1p-149F);
    const Encoded part = *testing::encode(*codec, values, residual);
    ASSERT_EQ(part.payload.size(), (values.size() * static_cast<std::size_t>(bits) + 7) / 8);
    const Floats back = *testing::decode(*codec, part.view(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float x = values[i] + 0x1p-149F;
      const int exponent = std::max(std::ilogb(x), -126);
      const double place = std::ldexp(1.0, exponent - (bits - 9));
      const double expected = std::trunc(static_cast<double>(x) / place) * place;
      ASSERT_EQ(static_cast<double>(back[i]), expected) << bits << " bits of " << x;
      ASSERT_EQ(residual[i], x - back[i]);
    }
  }
}

TEST(Truncate, ResidualIsZeroWhereNothingCanBeCorrected) {
  const auto codec = codec_of(kOf18);
  const Floats values = {std::numeric_limits<float>::quiet_NaN(), INFINITY, std::numeric_limits<float>::max(),
                         1.0F};
  Floats residual = {1, 2, std::numeric_limits<float>::max(), 0x1p-20F};
  const Encoded part = *testing::encode(*codec, values, residual);
  EXPECT_EQ(residual, (Floats{0, 0, 0, 0x1p-20F}));
  EXPECT_EQ(testing::decode(*codec, part.view(), 4)->at(2), INFINITY);
}

TEST(Truncate, DescribesEachBit) {
  std::vector<Section> sections;
  ASSERT_TRUE(codec_of(kOf18)->describe(one_chunk({0, 0, 0}, 0).view(), 1, sections));
  ASSERT_EQ(sections.size(), 3U);
  EXPECT_EQ(sections[0].bits, 9U);
  EXPECT_EQ(sections[1].bits, 9U);
  EXPECT_EQ(sections[2].bits, 6U);
}

TEST(TruncateRefusals, LengthsAndPadding) {
  const auto verdict = [](const Ints& bytes, std::uint64_t count, const char* spec) {
    return testing::verdict_of(spec, one_chunk(bytes, 0), count);
  };
  EXPECT_EQ(verdict({0xFF, 0xFF, 0x03}, 1, kOf18), kAccepted);
  EXPECT_EQ(verdict({0xFF, 0xFF, 0x07}, 1, kOf18), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 0, 0x80}, 1, kOf18), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 0}, 1, kOf18), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0, 0, 0, 0}, 1, kOf18), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0xFF, 0xFF}, 1, "truncate:bits=16"), kAccepted);
}

}  // namespace
}  // namespace deltawire::truncate_test
