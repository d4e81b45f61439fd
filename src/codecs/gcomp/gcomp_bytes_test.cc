// The bytes of gcomp, and how many they are.
#include <array>
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_testing.h"

namespace deltawire {
namespace {

using testing::bits_of;
using testing::codec_of;
using testing::to_ints;
using Ints = std::vector<int>;

Ints coded(std::string_view spec, const std::vector<float>& values,
           const std::vector<float>& significance = {}) {
  return to_ints(testing::encode_significant(*codec_of(spec), values, significance).payload);
}

std::uint64_t coded_bytes(std::string_view spec, const std::vector<float>& values,
                          const std::vector<float>& significance = {}) {
  return testing::encode_significant(*codec_of(spec), values, significance).payload.size();
}

std::vector<float> random_patterns(std::size_t count, std::uint64_t seed) {
  CounterRng random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
  return values;
}

TEST(GcompBytes, Zeros) {
  EXPECT_EQ(coded("gcomp", {}), Ints{});
  EXPECT_EQ(coded("gcomp", {0}), (Ints{1}));
  EXPECT_EQ(coded("gcomp", {0, -0.0F, 1e-40F}), (Ints{1}));
  EXPECT_EQ(coded("gcomp", std::vector<float>(262144, 0.0F)), (Ints{1}));
  EXPECT_EQ(coded("gcomp", std::vector<float>(262145, 0.0F)), (Ints{1, 1}));
  EXPECT_EQ(coded("gcomp:lossless=on", std::vector<float>(262144, 0.0F)), (Ints{1}));
}

TEST(GcompBytes, StoredWhereCodingWouldNotBeSmaller) {
  EXPECT_EQ(coded("gcomp", {1}), (Ints{0, 0, 0, 0x80, 0x3F}));
  // The stored value is the rounded one.
  EXPECT_EQ(coded("gcomp:cut=12", {std::bit_cast<float>(0xC0123FFFU)}), (Ints{0, 0, 0x40, 0x12, 0xC0}));
}

// n ones in a static table: 2 bits of code each, so floor(n / 8) words behind 9 bytes of heads, table and
// lane.
TEST(GcompBytes, EqualSizesAreStored) {
  EXPECT_EQ(coded("gcomp", std::vector<float>(9, 1.0F))[0], 0);
  const Ints ten = coded("gcomp", std::vector<float>(10, 1.0F));  // 9 + 2 + 30 bytes coded, 1 + 40 stored
  EXPECT_EQ(ten.size(), 41U);
  EXPECT_EQ(ten[0], 0);
  const Ints eleven = coded("gcomp", std::vector<float>(11, 1.0F));
  EXPECT_EQ(eleven.size(), 9 + 2 + 33U);
  EXPECT_EQ(eleven[0] & 3, 2);
  // A last block of 6 ones among many, whose code is one bit: 2 + 4 + 18 bytes coded, as many stored.
  for (const std::size_t last : {6U, 7U}) {
    const Ints bytes = coded("gcomp", std::vector<float>(16384 + last, 1.0F));
    const std::size_t body = last == 6 ? 24 : 27;
    EXPECT_EQ(bytes[bytes.size() - body - 1], last == 6 ? 0 : 2) << last;
  }
}

TEST(GcompBytes, AStaticTableByHand) {
  // 16 ones. Static table 1 at exponent 128: exponents 125, 126, 127 have the three shortest codes 00, 01,
  // 10, so each is the bits 1, 0. One lane; going backwards it fills from 16 to 31 bits twice, which moves
  // out the 16 zeros it began with and then 8 codes. Mantissas of 6 bits, all zero.
  Ints expected = {2 | 3 << 2 | 1 << 4, 128, 2, 2, 0, 0x55, 0x55, 1, 0, 0x55, 0x55, 0, 0};
  expected.resize(expected.size() + 12, 0);
  EXPECT_EQ(coded("gcomp:cut=18", std::vector<float>(16, 1.0F)), expected);
}

TEST(GcompBytes, AMixedTableByHand) {
  // Ten times 1 and -0: two symbols, 4 * 0 + 1 with the code 0 and 4 * 127 with the code 1. 20 codes push out
  // the 16 zeros; left are the codes of all elements, the first one lowest, below the bit that ends them.
  Ints expected = {3, 0, 0, 0x10, 1, 127, 1, 0, 0, 0, 2, 1, 0, 0x55, 0x55, 0x15, 0, 0, 0};
  std::vector<float> values;
  for (int i = 0; i < 10; ++i) {
    values.push_back(1);
    values.push_back(-0.0F);
    for (const int mantissa : {0, 0, 0, 0, 0, 0x80}) expected.push_back(mantissa);
  }
  EXPECT_EQ(coded("gcomp:lossless=on", values), expected);
}

TEST(GcompBytes, LevelsOfAMixedChunkByHand) {
  // 8 pairs of exponent 127: level 0 and level 3, one bit each, 24 and 6 bits of sign and mantissa.
  const float full = std::bit_cast<float>(0xBFFFFFFFU);
  std::vector<float> values(16, full);
  std::vector<float> significance(16, 0.0F);
  for (std::size_t i = 1; i < 16; i += 2) {
    values[i] = std::bit_cast<float>(0xBFFC0001U);  // loses its last bit; 6 ones stay
    significance[i] = 1e30F;
  }
  // The 16 codes 0, 1, 0, 1, ... push out the 16 zeros and stay.
  Ints expected = {3, 0, 0, 0, 1, 127, 1, 0, 0, 1, 127, 1, 2, 1, 0, 0xAA, 0xAA, 1, 0, 0, 0};
  expected.resize(expected.size() + 8 * 30 / 8, 0xFF);
  EXPECT_EQ(coded("gcomp", values, significance), expected);
}

TEST(GcompBytes, LanesByBlockLength) {
  using gcomp::lanes_for;
  EXPECT_EQ(lanes_for(1), 1U);
  EXPECT_EQ(lanes_for(511), 1U);
  EXPECT_EQ(lanes_for(512), 2U);
  EXPECT_EQ(lanes_for(16383), 32U);
  EXPECT_EQ(lanes_for(16384), 64U);
}

// Bits an element: the entropy of the exponents, one after another without memory, and 24 for each that isn't
// 0.
double order_0_bits(const std::vector<float>& values) {
  std::array<double, 256> counts{};
  for (const float value : values) counts[bits_of(value) >> 23 & 0xFF] += 1;
  const auto total = static_cast<double>(values.size());
  double bits = 24 * (total - counts[0]) / total;
  for (const double count : counts) bits -= count > 0 ? count / total * std::log2(count / total) : 0;
  return bits;
}

void expect_near_entropy(const std::vector<float>& values, const char* what) {
  const double bits =
      8.0 * static_cast<double>(coded_bytes("gcomp", values)) / static_cast<double>(values.size());
  EXPECT_LE(bits, 1.02 * order_0_bits(values)) << what;
}

TEST(GcompBytes, WithinTwoPercentOfTheEntropy) {
  std::vector<float> values = testing::normal_values(1000000, 1);
  expect_near_entropy(values, "normal");
  std::vector<float> half = values;
  for (std::size_t i = 0; i < half.size(); i += 2) half[i] = 0;
  expect_near_entropy(half, "50 % zeros");
  // Matrices of which every other run of columns is dead. A sample at a constant stride would see none of the
  // live ones, or nothing else.
  for (const std::size_t run : {16U, 64U, 128U, 512U}) {
    for (const std::size_t dead : {0U, 1U}) {
      std::vector<float> columns = values;
      for (std::size_t i = 0; i < columns.size(); ++i) {
        if (i / run % 2 == dead) columns[i] = 0;
      }
      expect_near_entropy(columns, "dead columns");
    }
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] *= std::ldexp(1.0F, -static_cast<int>(i / 100000));
  expect_near_entropy(values, "layers");
  values.resize(5000);
  expect_near_entropy(values, "a short part");
}

TEST(GcompBytes, BlocksWithoutCodesNeedNoTable) {
  std::vector<float> values = random_patterns(2 * 16384 + 1, 3);
  for (std::size_t i = 16384; i < 2 * 16384; ++i) values[i] = 0;
  for (const char* spec : {"gcomp", "gcomp:lossless=on"}) {
    Ints bytes = coded(spec, values);
    EXPECT_EQ(bytes.size(), 3 + 8 + 1 + 4 * 16384 + 1 + 1 + 4U) << spec;
    bytes.resize(12);
    EXPECT_EQ(bytes, (Ints{2, 0x11, 0, 1, 0, 1, 0, 2, 0, 1, 0, 0})) << spec;
  }
}

// All blocks stored is the chunk stored, and no table stands before them.
TEST(GcompBytes, StoredBlocksAloneAreAStoredChunk) {
  for (const std::size_t count : {16384U, 2 * 16384U, 3 * 16384U + 5U}) {
    const Ints bytes = coded("gcomp:lossless=on", random_patterns(count, count));
    EXPECT_EQ(bytes.size(), 1 + 4 * count);
    EXPECT_EQ(bytes[0], 0);
  }
}

// The sample of spec.md, 6.3, by another way: which of all elements are counted.
bool sampled(std::size_t i, std::size_t count) {
  unsigned p = 0;
  while (count > std::size_t{16384} << p) ++p;
  const std::size_t line = i / 16;
  const auto group = static_cast<std::uint32_t>(line >> p);
  std::uint32_t hash = group * 0x9E3779B1U;
  hash = (hash ^ hash >> 15) * 0x85EBCA77U;
  return line == ((std::size_t{group} << p) + (std::uint64_t{hash} << p >> 32));
}

TEST(GcompBytes, TheSampleIsTheOneOfTheSpec) {
  for (const std::uint32_t count : {1U, 15U, 16384U, 16385U, 32768U, 32769U, 100003U, 262143U, 262144U}) {
    const std::vector<float> values = random_patterns(count, count);
    std::vector<std::uint32_t> expected(gcomp::kPlainSymbols, 0U);
    for (std::size_t i = 0; i < count; ++i) {
      if (sampled(i, count)) ++expected[4 * (bits_of(values[i]) >> 23 & 255)];
    }
    std::vector<std::uint32_t> counts(gcomp::kPlainSymbols, 7U);
    gcomp::Values chunk;
    chunk.in = values.data();
    chunk.count = count;
    gcomp::kernels_for(TargetId::kReference).histogram(chunk, counts.data());
    EXPECT_EQ(counts, expected) << count;
  }
}

// A block that was counted whole needs no escape; a sample may have missed something.
TEST(GcompBytes, EscapesAreForSamples) {
  for (const std::size_t count : {16384U, 16385U}) {
    std::vector<float> values(count, 1.0F);
    for (std::size_t i = 0; i < count; i += 2) values[i] = 0x1p-40F;
    const Ints bytes = coded("gcomp", values);
    EXPECT_EQ(bytes[0], 2) << count;
    EXPECT_EQ((bytes[1] & 0xF) != 0, count > 16384) << count;
  }
}

TEST(GcompBytes, CutsSaveWhatTheyDrop) {
  constexpr std::size_t kCount = 262144;
  std::vector<float> values = testing::normal_values(kCount, 2);
  // Nothing to round, so that no exponent changes: mantissas are packed whatever is in them.
  for (float& value : values) value = std::bit_cast<float>(bits_of(value) & 0xFFFC0000U);
  const std::uint64_t whole = coded_bytes("gcomp:cut=0", values);
  for (const std::uint64_t bits : {6U, 12U, 18U}) {
    EXPECT_EQ(coded_bytes("gcomp:cut=" + std::to_string(bits), values), whole - kCount * bits / 8);
  }
  // Levels cost less than two bits each: weights 50 times as large as gradients, divided by a rate of 0.01.
  std::vector<float> weights = testing::normal_values(kCount, 3);
  for (float& weight : weights) weight *= 5000;
  const auto codec = codec_of("gcomp");
  const auto part = testing::encode_significant(*codec, values, weights);
  std::vector<Section> sections;
  ASSERT_TRUE(codec->describe(part.view(), kCount, sections));
  for (const Section& section : sections) {
    if (section.name != "exponents and levels") continue;
    EXPECT_LE(section.bits, kCount * 36 / 10);  // 2.6 of them for the exponents
    EXPECT_GE(section.bits, kCount * 33 / 10);
  }
}

TEST(GcompBytes, IncompressibleInputGrowsByATenthOfAPercentAtMost) {
  for (const std::size_t count : {256U, 1000U, 16384U, 16385U, 40000U, 262144U, 1000000U}) {
    std::vector<float> values = random_patterns(count, count);
    for (const char* spec : {"gcomp", "gcomp:lossless=on"}) {
      EXPECT_LE(coded_bytes(spec, values), 4 * count + count / 250) << spec << " " << count;
    }
    // Random exponents of finite numbers, too: whole chunks, and every other block of a chunk.
    for (float& value : values) {
      if (!std::isfinite(value)) value = 1;
    }
    EXPECT_LE(coded_bytes("gcomp", values), 4 * count + count / 250) << count;
    for (std::size_t i = 0; i < count; ++i) {
      if (i / gcomp::kBlockElements % 2 == 1) values[i] = 0;
    }
    EXPECT_LE(coded_bytes("gcomp", values), 4 * count + count / 250) << count;
  }
}

TEST(GcompBytes, ShortPartsShareStaticTables) {
  // An own table of 12 exponents takes 9 bytes, a static one a single byte.
  std::vector<float> values = testing::normal_values(300, 5);
  EXPECT_NE(coded("gcomp", values)[0] >> 4, 0);
  for (float& value : values) value *= 0x1p-30F;
  EXPECT_NE(coded("gcomp", values)[0] >> 4, 0);
  EXPECT_EQ(coded("gcomp", testing::normal_values(16384, 5))[0] >> 4, 0);
}

TEST(GcompBytes, SectionsSumToThePayload) {
  const auto codec = codec_of("gcomp");
  std::vector<float> values = testing::normal_values(262144 + 3 * 16384, 6);
  for (std::size_t i = 16384; i < 2 * 16384; ++i) values[i] = 0;
  const auto noise = random_patterns(16384, 7);
  std::copy(noise.begin(), noise.end(), values.begin() + 5 * 16384);
  const auto part = *testing::encode(*codec, values);
  std::vector<Section> sections;
  ASSERT_TRUE(codec->describe(part.view(), values.size(), sections));
  std::uint64_t bits = 0;
  std::string names;
  for (const Section& section : sections) {
    bits += section.bits;
    names += std::string(section.name) + "; ";
    EXPECT_TRUE(section.name != "stored values" || section.bits == 16384 * 32) << section.bits;
    EXPECT_TRUE(section.name != "block index" || section.bits == (15 + 2) * 32) << section.bits;
  }
  EXPECT_EQ(bits, part.payload.size() * 8);
  EXPECT_EQ(names, "heads; tables; block index; exponents and levels; signs and mantissas; stored values; ");
}

}  // namespace
}  // namespace deltawire
