// keys=auto: its bytes, how few they are, and that all else is as with the paper's keys.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"

namespace deltawire::fastsgd_positions_test {
namespace {

using testing::bits_of;
using testing::codec_of;
using testing::Encoded;
using testing::to_ints;
using Floats = std::vector<float>;
using Ints = std::vector<int>;

Encoded encoded(std::string_view spec, const Floats& values) {
  return *testing::encode(*codec_of(spec), values);
}

// Pairs of ones at the keys.
Pairs ones_at(std::vector<std::uint32_t> keys, std::uint64_t dimension) {
  Pairs pairs;
  pairs.values.assign(keys.size(), 1.0F);
  pairs.keys = std::move(keys);
  pairs.dimension = dimension;
  return pairs;
}

Encoded encoded(std::string_view spec, const Pairs& pairs) {
  const TensorView view{pairs.values.data(), pairs.values.size(), DType::kF32, pairs.keys.data(),
                        pairs.dimension};
  return *testing::encode_view(*codec_of(spec), view);
}

// The tensor of FastsgdBytes.PaperFigure3. Gaps of 231 and 2 in Rice codes of 6 low bits: 1110 and 39, 0 and
// 2.
TEST(FastsgdPositions, PaperFigure3) {
  Floats x(1000, 0.0F);
  x[343] = 4;
  x[575] = -2;
  x[578] = 2;
  const Encoded part = encoded("fastsgd:b=2,tau=128,keys=auto", x);
  EXPECT_EQ(part.scalar, bits_of(8.0F));
  const int values = 0b00 | 0b11 << 2 | 0b01 << 4;
  EXPECT_EQ(to_ints(part.payload),
            (Ints{0x01, 0x08, 6, 3, 0, 343 & 255, 343 >> 8, 0, 0, 0x77, 0x12, 0x00, values}));
  EXPECT_EQ(*testing::decode(*codec_of("fastsgd:b=2,tau=128,keys=auto"), part.view(), 1000), x);
}

// In a row between its ends a key needs no bits: the second code is the shorter one.
TEST(FastsgdPositions, KeysInARow) {
  const Floats x(40, -1.0F);
  const Encoded part = encoded("fastsgd:b=2,tau=128,keys=auto", x);
  // sum = 40, L = 6: V = 0.625. Forty signs.
  EXPECT_EQ(to_ints(part.payload),
            (Ints{6, 0, 31, 40, 0, 0, 0, 0, 0, 39, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}));
}

TEST(FastsgdPositions, NothingToSend) {
  for (const Floats& x : {Floats{0, -0.0F}, Floats(3, 0.0F)}) {
    EXPECT_EQ(to_ints(encoded("fastsgd:keys=auto", x).payload), (Ints{0, 0, 0, 0, 0}));
  }
  EXPECT_TRUE(encoded("fastsgd:keys=auto", Floats{}).payload.empty());
  EXPECT_EQ(to_ints(encoded("fastsgd:keys=auto", ones_at({}, 1000)).payload), (Ints{0, 0, 0, 0, 0}));
}

// Which pairs are sent, what they become and what is left do not hang on how keys are coded.
TEST(FastsgdPositions, ValuesAreThoseOfThePapersKeys) {
  for (const std::size_t count : {1U, 2U, 255U, 256U, 257U, 16384U, 16385U, 70000U}) {
    for (const char* const spec : {"fastsgd:tau=96", "fastsgd:keep=0.9,residual=on", "fastsgd:b=2,l=5"}) {
      const Floats values = testing::normal_values(count, count);
      Floats left[2] = {Floats(count, 0.125F), Floats(count, 0.125F)};
      Encoded parts[2];
      Floats back[2];
      for (const std::size_t i : {0U, 1U}) {
        const auto codec = codec_of(std::string(spec) + (i == 0 ? "" : ",keys=auto"));
        parts[i] = *testing::encode(*codec, values, left[i]);
        back[i] = *testing::decode(*codec, parts[i].view(), count, Into::kAccumulate, 0.3F, 0.7F);
      }
      SCOPED_TRACE(std::string(spec) + " " + std::to_string(count));
      ASSERT_EQ(parts[0].scalar, parts[1].scalar);
      ASSERT_EQ(parts[0].chunk_ends.size(), parts[1].chunk_ends.size());
      ASSERT_TRUE(testing::same_bits(left[0], left[1]));
      ASSERT_TRUE(testing::same_bits(back[0], back[1]));
    }
  }
}

std::uint64_t section_bits(std::string_view spec, const Encoded& part, std::uint64_t count,
                           std::string_view name) {
  std::vector<Section> sections;
  EXPECT_TRUE(codec_of(spec)->describe(part.view(), count, sections));
  for (const Section& section : sections) {
    if (section.name == name) return section.bits;
  }
  return 0;
}

double key_bits(std::string_view spec, const Pairs& pairs) {
  const Encoded part = encoded(spec, pairs);
  return static_cast<double>(section_bits(spec, part, pairs.dimension, "keys")) /
         static_cast<double>(pairs.keys.size());
}

// One key in 1 / density at random.
Pairs drawn(double density, std::uint64_t pairs, double growth = 1) {
  CounterRng random(static_cast<std::uint64_t>(1 / density));
  std::vector<std::uint32_t> keys;
  std::uint64_t key = 0;
  for (std::uint64_t i = 0; i < pairs; ++i) {
    const double gap = std::floor(std::log1p(-random.next_uniform()) / std::log1p(-density));
    key += static_cast<std::uint64_t>(gap);
    keys.push_back(static_cast<std::uint32_t>(key++));
    density /= growth;
  }
  return ones_at(std::move(keys), key);
}

// Of random keys the entropy is the least, and the paper's code takes 1 to 1.4 bits more.
TEST(FastsgdPositions, RandomKeysTakeHardlyMoreThanTheirEntropy) {
  for (const double p : {0.25, 0.1, 0.01, 0.001}) {
    const Pairs pairs = drawn(p, 65536);
    const double entropy = -(p * std::log2(p) + (1 - p) * std::log2(1 - p)) / p;
    const double bits = key_bits("fastsgd:tau=2047,keys=auto", pairs);
    EXPECT_GT(bits, entropy - 0.05) << p;
    EXPECT_LT(bits, entropy + 0.15) << p;
    EXPECT_GT(key_bits("fastsgd:tau=2047", pairs), bits + 0.9) << p;
  }
}

// From all of the first keys to one in a thousand: no code of one parameter fits them.
TEST(FastsgdPositions, KeysThatThinOutTakeFarLess) {
  const Pairs pairs = drawn(0.999, 8192, std::exp2(10.0 / 8192));
  EXPECT_LT(key_bits("fastsgd:tau=2047,keys=auto", pairs), 0.8 * key_bits("fastsgd:tau=2047", pairs));
}

TEST(FastsgdPositions, SectionsAreOfTheChunk) {
  constexpr std::string_view kSpec = "fastsgd:b=2,tau=128,keys=auto";
  Floats x(1000, 0.0F);
  x[343] = 4;
  x[575] = -2;
  x[578] = 2;
  const Encoded part = encoded(kSpec, x);
  EXPECT_EQ(section_bits(kSpec, part, 1000, "chunk heads"), 72U);
  EXPECT_EQ(section_bits(kSpec, part, 1000, "keys"), 24U);
  EXPECT_EQ(section_bits(kSpec, part, 1000, "values"), 8U);
  const Encoded row = encoded(kSpec, Floats(40, -1.0F));
  EXPECT_EQ(section_bits(kSpec, row, 40, "chunk heads"), 104U);
  EXPECT_EQ(section_bits(kSpec, row, 40, "keys"), 0U);
}

// Keys at the end of what 32 bits can count, and the tensor beyond.
TEST(FastsgdPositions, TheLargestTensor) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  constexpr std::string_view kSpec = "fastsgd:b=2,keys=auto";
  const Pairs pairs = ones_at({0, 0xFFFFFFFD, 0xFFFFFFFE}, kMost);
  const Encoded part = encoded(kSpec, pairs);
  Floats values(3);
  std::vector<std::uint32_t> keys(3);
  const TensorSlot slot{values.data(), 3, DType::kF32, keys.data(), kMost};
  ASSERT_TRUE(codec_of(kSpec)->decode_pairs(part.view(), slot, 1));
  EXPECT_EQ(keys, pairs.keys);
  const TensorView beyond{pairs.values.data(), 3, DType::kF32, pairs.keys.data(), kMost + 1};
  const auto refused = testing::encode_view(*codec_of("fastsgd:b=2"), beyond);
  EXPECT_TRUE(refused) << "the paper's keys know no such bound";
  EXPECT_EQ(codec_of(kSpec)->sizes(beyond).payload_bytes, std::numeric_limits<std::uint64_t>::max());
}

TEST(FastsgdPositions, Specs) {
  constexpr std::string_view kPlain = "fastsgd:b=1.1,tau=auto,keep=0.25,l=2,residual=off";
  EXPECT_EQ(codec_of("fastsgd:keys=flags")->spec(), kPlain);
  EXPECT_EQ(codec_of("fastsgd:keys=auto")->spec(), std::string(kPlain) + ",keys=auto");
  EXPECT_FALSE(make_codec("fastsgd:keys=golomb"));
}

}  // namespace
}  // namespace deltawire::fastsgd_positions_test
