// The bytes of gcomp, and how many they are.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <tuple>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_testing.h"

namespace deltawire::gcomp_bytes_test {
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

// n ones in a static table: 2 bits of code each, so floor(n / 8) words, and 3 bytes of mantissa, beside 9
// bytes of heads, table and lane.
TEST(GcompBytes, EqualSizesAreStored) {
  for (const auto& [ones, bytes, mode] : {std::tuple{9U, 37U, 0}, {10U, 41U, 0}, {11U, 44U, 2}}) {
    const Ints coded_ones = coded("gcomp", std::vector<float>(ones, 1.0F));
    EXPECT_EQ(coded_ones.size(), bytes);
    EXPECT_EQ(coded_ones[0] & 3, mode);
  }
  // A last block of 6 ones among many, whose code is one bit: 7 + 18 bytes coded, as many stored.
  for (const std::size_t last : {6U, 7U}) {
    const Ints bytes = coded("gcomp", std::vector<float>(32768 + last, 1.0F));
    const std::size_t block = last == 6 ? 25 : 28;
    EXPECT_EQ(bytes[bytes.size() - block] & 3, last == 6 ? 0 : 2) << last;
  }
}

TEST(GcompBytes, AStaticTableByHand) {
  // 16 ones, level 6. Static table 1 at exponent 128: exponents 125, 126, 127 have the three shortest codes
  // 00, 01, 10, so each is the bits 1, 0. One lane, 8 stretches; going backwards it fills from 16 to 32 bits
  // twice, which moves out the 16 zeros it began with and then 8 codes. Mantissas of 6 bits, all zero, fill
  // 32 bits with the 6th, 11th and 16th.
  Ints expected = {3 | 6 << 2 | 1 << 5, 128, 2 | (16 << 2), 0, 0};
  expected.resize(expected.size() + 14, 0);
  for (const int byte : {0x55, 0x55, 0x55, 0x55, 1, 0, 1, 0, 0, 0}) expected.push_back(byte);
  EXPECT_EQ(coded("gcomp:cut=18", std::vector<float>(16, 1.0F)), expected);
}

TEST(GcompBytes, AWholeTableByHand) {
  // Ten times 1 and -0: two symbols, exponent 127 with the code 0 and tiny with the code 1. The 16th code
  // pushes out the 16 zeros; left are the codes of all elements, the first one lowest, below the bit that
  // ends them.
  Ints expected = {2, 0, 1, 1, 1, 127, 1, 2 | (62 << 2), 0, 0};
  std::vector<float> values;
  for (int i = 0; i < 10; ++i) {
    values.push_back(1);
    values.push_back(-0.0F);
    for (const int mantissa : {0, 0, 0, 0, 0, 0x80}) expected.push_back(mantissa);
    if (i == 7) expected.insert(expected.end(), {0, 0});
  }
  expected.insert(expected.end(), {0xAA, 0xAA, 0x1A, 0});
  EXPECT_EQ(coded("gcomp:lossless=on", values), expected);
}

TEST(GcompBytes, LevelsOfACutChunkByHand) {
  // 8 pairs of exponent 127: level 0 and level 6, one bit each, 24 and 6 bits of sign and mantissa.
  const float full = std::bit_cast<float>(0xBFFFFFFFU);
  std::vector<float> values(16, full);
  std::vector<float> significance(16, 0.0F);
  for (std::size_t i = 1; i < 16; i += 2) {
    values[i] = std::bit_cast<float>(0xBFFC0001U);  // loses its last bit; 6 ones stay
    significance[i] = 0x1p17F;
  }
  // 240 ones: seven words, and 16 stay. The codes 0, 1, 0, 1, ... push out the 16 zeros and stay.
  Ints expected = {3, 0, 0x41, 1, 127, 1, 1, 127, 1, 2 | (30 << 2), 0, 0};
  expected.resize(expected.size() + 7 * 4, 0xFF);
  expected.insert(expected.end(), {0, 0, 0xAA, 0xAA, 1, 0, 0xFF, 0xFF, 1, 0});
  EXPECT_EQ(coded("gcomp", values, significance), expected);
  EXPECT_EQ(coded("gcomp:levels=4", values, significance), expected);
}

TEST(GcompBytes, AnEscapeByHand) {
  // 1,999 ones, and a number too far away for the table's window: the bits 0 and 1. Its exponent is the last
  // byte that its stretch puts into the stream.
  std::vector<float> values(2000, 1.0F);
  values[1999] = 0x1p40F;
  const Ints bytes = coded("gcomp", values);
  EXPECT_EQ((Ints(bytes.begin(), bytes.begin() + 7)), (Ints{2, 1, 0, 1, 1, 127, 1}));
  // 16 lanes, so the last stretch has 2000 mod 32 = 16 values, of 3 bytes each.
  EXPECT_EQ(bytes[7 + 3 + 48], 167);
}

TEST(GcompBytes, LanesByBlockLength) {
  using gcomp::lanes_for;
  EXPECT_EQ(lanes_for(1), 1U);
  EXPECT_EQ(lanes_for(127), 1U);
  EXPECT_EQ(lanes_for(128), 2U);
  EXPECT_EQ(lanes_for(4095), 32U);
  EXPECT_EQ(lanes_for(4096), 64U);
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
  std::vector<float> values = random_patterns(2 * 32768 + 1, 3);
  for (std::size_t i = 32768; i < 2 * 32768; ++i) values[i] = 0;
  for (const char* spec : {"gcomp", "gcomp:lossless=on"}) {
    Ints bytes = coded(spec, values);
    EXPECT_EQ(bytes.size(), 3 + 8 + 1 + 4 * 32768 + 1 + 1 + 4U) << spec;
    bytes.resize(12);
    EXPECT_EQ(bytes, (Ints{3, 0x11, 0, 1, 0, 2, 0, 2, 0, 2, 0, 0})) << spec;
  }
}

// A block among others that turns out larger than stored is what its codes say, and the residual what they
// cut.
TEST(GcompBytes, AStoredBlockAmongCodedOnes) {
  std::vector<float> values = testing::normal_values(3 * 32768, 4);
  const std::vector<float> noise = random_patterns(32768, 5);
  for (std::size_t i = 0; i < noise.size(); ++i) {
    values[32768 + i] = std::isfinite(noise[i]) ? noise[i] : 1.0F;
  }
  for (const char* spec : {"gcomp", "gcomp:cut=6", "gcomp:lossless=on"}) {
    const auto codec = codec_of(spec);
    std::vector<float> residual(values.size(), 0.0F);
    const auto part = *testing::encode(*codec, values, residual);
    std::vector<Section> sections;
    ASSERT_TRUE(codec->describe(part.view(), values.size(), sections));
    for (const Section& section : sections) {
      EXPECT_TRUE(section.name != "stored values" || section.bits == 32768 * 32) << section.bits;
    }
    EXPECT_EQ(sections.back().name, "stored values") << spec;
    const auto back = *testing::decode(*codec, part.view(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(static_cast<double>(back[i]) + static_cast<double>(residual[i]), values[i]) << spec << i;
    }
  }
}

// All blocks stored is the chunk stored, and no table stands before them.
TEST(GcompBytes, StoredBlocksAloneAreAStoredChunk) {
  for (const std::size_t count : {32768U, 2 * 32768U, 3 * 32768U + 5U}) {
    const Ints bytes = coded("gcomp:lossless=on", random_patterns(count, count));
    EXPECT_EQ(bytes.size(), 1 + 4 * count);
    EXPECT_EQ(bytes[0], 0);
  }
}

// The sample of spec.md, 6.3, by another way: which of all elements are counted.
bool sampled(std::size_t i, std::size_t count) {
  unsigned p = 0;
  while (p < 4 && count >= std::size_t{2048} << p) ++p;
  const std::size_t line = i / 16;
  const auto group = static_cast<std::uint32_t>(line >> p);
  std::uint32_t hash = group * 0x9E3779B1U;
  hash = (hash ^ hash >> 15) * 0x85EBCA77U;
  return line == ((std::size_t{group} << p) + (std::uint64_t{hash} << p >> 32));
}

// Of a block that nothing can be gained from, kernels write more than its values before that is known.
TEST(GcompBytes, BlocksAreCodedWithinThePayload) {
  // Promising by its sample alone.
  std::vector<float> values = random_patterns(2 * 32768, 5);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (sampled(i, values.size())) values[i] = 1;
  }
  const auto codec = codec_of("gcomp");
  const TensorView part{values.data(), values.size(), DType::kF32};
  const Sizes sizes = codec->sizes(part);
  constexpr std::byte kGuard{0xA5};
  std::vector<std::byte> payload(sizes.payload_bytes + 65536, kGuard);
  std::vector<std::byte> scratch(sizes.scratch_bytes);
  std::vector<std::uint32_t> ends(sizes.chunks);
  ASSERT_TRUE(
      codec->encode(part, {}, {std::span(payload).first(sizes.payload_bytes), ends}, {.scratch = scratch}));
  for (std::size_t i = sizes.payload_bytes; i < payload.size(); ++i) ASSERT_EQ(payload[i], kGuard) << i;
}

TEST(GcompBytes, TheSampleIsTheOneOfTheSpec) {
  for (const std::uint32_t count :
       {1U, 15U, 2047U, 2048U, 8191U, 8192U, 32768U, 32769U, 100003U, 262143U, 262144U}) {
    const std::vector<float> values = random_patterns(count, count);
    std::vector<std::uint32_t> expected(gcomp::kCounts, 0U);
    for (std::size_t i = 0; i < count; ++i) {
      if (sampled(i, count)) ++expected[bits_of(values[i]) >> 23 & 255];
    }
    std::vector<std::uint32_t> counts(gcomp::kCounts, 7U);
    gcomp::Values chunk;
    chunk.in = values.data();
    chunk.count = count;
    gcomp::kernels_for(TargetId::kReference).histogram(chunk, counts.data());
    EXPECT_EQ(counts, expected) << count;
  }
}

// A block that was counted whole needs no escape; a sample may have missed something.
TEST(GcompBytes, EscapesAreForSamples) {
  for (const std::size_t count : {2047U, 2048U}) {
    std::vector<float> values(count, 1.0F);
    for (std::size_t i = 0; i < count; i += 2) values[i] = 0x1p-20F;
    const Ints bytes = coded("gcomp", values);
    EXPECT_EQ(bytes[0], 2) << count;
    EXPECT_EQ((bytes[1] & 0xF) != 0, count >= 2048) << count;
  }
}

TEST(GcompBytes, CutsSaveWhatTheyDrop) {
  constexpr std::size_t kCount = 262144;
  std::vector<float> values = testing::normal_values(kCount, 2);
  // Nothing to round, so that no exponent changes: mantissas are packed whatever is in them.
  for (float& value : values) value = std::bit_cast<float>(bits_of(value) & 0xFFFC0000U);
  const std::uint64_t whole = coded_bytes("gcomp:cut=0", values);
  for (const std::uint64_t bits : {6U, 12U, 18U}) {
    const std::uint64_t cut = coded_bytes("gcomp:cut=" + std::to_string(bits), values);
    const std::uint64_t least = whole - kCount * bits / 8;
    EXPECT_GE(cut, least);
    EXPECT_LE(cut, least + 8 * 16 * 4 + 200) << "16 lanes of mantissas in 8 blocks, and rare exponents";
  }
}

// Codes of exponent and level together: weights 50 times as large as gradients, divided by a rate of 0.01.
TEST(GcompBytes, LevelsCostLessThanOneAndAHalfBits) {
  constexpr std::size_t kCount = 262144;
  const std::vector<float> values = testing::normal_values(kCount, 2);
  std::vector<float> weights = testing::normal_values(kCount, 3);
  double mantissas = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    weights[i] *= 5000;
    const int distance = std::ilogb(weights[i]) - std::ilogb(values[i]) + 1;
    mantissas += 24 - 3 * std::clamp(distance / 3, 0, 7);
  }
  const double bits = 8.0 * static_cast<double>(coded_bytes("gcomp", values, weights)) - mantissas;
  EXPECT_LE(bits / kCount, 4.1);  // 2.6 of them for the exponents
  EXPECT_GE(bits / kCount, 3.6);
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
  EXPECT_NE(coded("gcomp", values)[0] >> 5, 0);
  for (float& value : values) value *= 0x1p-30F;
  EXPECT_NE(coded("gcomp", values)[0] >> 5, 0);
  EXPECT_EQ(coded("gcomp", testing::normal_values(2048, 5))[0] >> 5, 0);
}

TEST(GcompBytes, SectionsSumToThePayload) {
  const auto codec = codec_of("gcomp");
  std::vector<float> values = testing::normal_values(262144 + 3 * 16384, 6);
  for (std::size_t i = 32768; i < 2 * 32768; ++i) values[i] = 0;
  const auto noise = random_patterns(32768, 7);
  std::copy(noise.begin(), noise.end(), values.begin() + 5 * 32768);
  const auto part = *testing::encode(*codec, values);
  std::vector<Section> sections;
  ASSERT_TRUE(codec->describe(part.view(), values.size(), sections));
  std::uint64_t bits = 0;
  std::string names;
  for (const Section& section : sections) {
    bits += section.bits;
    names += std::string(section.name) + "; ";
    EXPECT_TRUE(section.name != "stored values" || section.bits == 32768 * 32) << section.bits;
    EXPECT_TRUE(section.name != "block index" || section.bits == (7 + 1) * 32) << section.bits;
  }
  EXPECT_EQ(bits, part.payload.size() * 8);
  EXPECT_EQ(names, "heads; tables; block index; lanes; codes and mantissas; stored values; ");
}

}  // namespace
}  // namespace deltawire::gcomp_bytes_test
