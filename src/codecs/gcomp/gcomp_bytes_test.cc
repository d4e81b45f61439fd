// The bytes of gcomp, and how many they are; and every form that a decoder must refuse, in both ways of
// decoding and in describe.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <tuple>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp_bytes_test {
namespace {

using namespace testing;
using Ints = std::vector<int>;

// Encodes `values` with `significance`, one number for each of them, or none at all.
testing::Encoded encode_significant(const Codec& codec, const std::vector<float>& values,
                                    const std::vector<float>& significance) {
  TensorView part{values.data(), values.size(), DType::kF32};
  part.significance = significance.empty() ? nullptr : significance.data();
  return *testing::encode_view(codec, part);
}

Ints coded(std::string_view spec, const std::vector<float>& values,
           const std::vector<float>& significance = {}) {
  return to_ints(encode_significant(*codec_of(spec), values, significance).payload);
}

std::uint64_t coded_bytes(std::string_view spec, const std::vector<float>& values,
                          const std::vector<float>& significance = {}) {
  return encode_significant(*codec_of(spec), values, significance).payload.size();
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

// n ones in a static table: 2 bits of code each, so floor(n / 8) words, and 3 bytes of mantissa, besides 9
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

// As LevelsOfACutChunkByHand, of values with 8 or 11 bits of sign and mantissa.
TEST(GcompBytes, HalvesByHand) {
  // 16 times -1.5: exponent 127 has the code 0. Its 16 codes push out the 16 zeros; the bits of sign and
  // mantissa fill four words.
  const std::vector<float> values(16, -1.5F);
  Ints expected = {3 | 1 << 2 | 1 << 7, 1, 1, 1, 127, 1, 2 | (18 << 2), 0, 0};
  expected.resize(expected.size() + 16, 0xC0);
  expected.insert(expected.end(), {0, 0, 0, 0, 1, 0, 1, 0, 0, 0});
  EXPECT_EQ(coded("gcomp:values=bf16", values), expected);
  // 16 times 11 bits: five words, the oldest bits first, and 16 bits stay.
  const Ints fp16 = coded("gcomp:values=fp16", values);
  EXPECT_EQ(fp16[0], 3 | 2 << 2 | 1 << 7);
  EXPECT_EQ(fp16.size(), 9 + 5 * 4 + 2 + 8U);
}

// As AWholeTableByHand, with the 8 bits of sign and mantissa in a lane: they fill four words, of two
// stretches each.
TEST(GcompBytes, LosslessHalvesByHand) {
  std::vector<float> values;
  for (int i = 0; i < 8; ++i) values.insert(values.end(), {-1.5F, -0.0F});
  Ints expected = {2 | 1 << 2 | 1 << 7, 0, 1, 1, 1, 127, 1, 2 | (18 << 2), 0, 0};
  for (int i = 0; i < 8; ++i) expected.insert(expected.end(), {0x80, 0xC0});
  expected.insert(expected.end(), {0, 0, 0xAA, 0xAA, 1, 0, 1, 0, 0, 0});
  EXPECT_EQ(coded("gcomp:lossless=on,values=bf16", values), expected);
  const Ints fp16 = coded("gcomp:lossless=on,values=fp16", values);
  EXPECT_EQ(fp16[0], 2 | 2 << 2 | 1 << 7);
  EXPECT_EQ(fp16.size(), 10 + 5 * 4 + 2 + 8U);
}

// Ones have level 7, and the table this symbol and the escape; fewer of them are not looked at, and a half of
// them are as good as all.
TEST(GcompBytes, LowZerosByHand) {
  std::vector<float> values(1024, 1.0F);
  const auto head = [&] {
    Ints bytes = coded("gcomp:lossless=on", values);
    bytes.resize(6);
    return bytes;
  };
  EXPECT_EQ(head(), (Ints{3, 1, 1 << 7, 1, 127, 1}));
  for (std::size_t i = 0; i < 512; ++i) values[i] = std::bit_cast<float>(0x3F800001U);
  EXPECT_EQ(head()[0] & 3, 3);
  values[512] = values[0];
  EXPECT_EQ(head()[0] & 3, 2);
  values.assign(1023, 1.0F);
  EXPECT_EQ(head()[0] & 3, 2);
  // The highest exponent that has levels, and the one above.
  values.assign(1024, 0x1p106F);
  EXPECT_EQ(head(), (Ints{3, 1, 1 << 7, 1, 233, 1}));
  values.assign(1024, 0x1p107F);
  EXPECT_EQ(head()[0] & 3, 2);
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

// For an incompressible block, kernels write more than its values before they know.
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

ErrorCode verdict(const testing::Encoded& part, std::uint64_t count, std::string_view spec = "gcomp") {
  return testing::verdict_of(spec, part, count);
}

ErrorCode verdict(const Ints& bytes, std::uint64_t count, std::string_view spec = "gcomp") {
  return verdict(one_chunk(bytes, 0), count, spec);
}

// `bytes` after one another.
Ints joined(std::initializer_list<Ints> pieces) {
  Ints all;
  for (const Ints& piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
  return all;
}

// Exponent 127 and zeros, one bit each: zero is 0, exponent 127 is 1. In whole chunks, and in cut ones.
const Ints kTable = {0x10, 0, 1, 1, 127, 1};
const Ints kCutTable = {0x10, 1, 1, 127, 1};
// A coded block with this stream and these lanes.
Ints block_with(const Ints& stream, const Ints& lanes) {
  const auto head = static_cast<int>(2 + 4 * stream.size());
  return joined({{head & 0xFF, head >> 8, 0}, stream, lanes});
}

// Coded block of one element 1.0: its mantissa, and the lane with the code above the 16 zeros it began with.
const Ints kOne = {2 + 4 * 3, 0, 0, 0, 0, 0, 1, 0, 2, 0};
const Ints kZero = {2, 0, 0, 0, 0, 2, 0};

TEST(GcompRefusals, WhatTheOthersAreVariationsOf) {
  EXPECT_EQ(verdict(joined({{2}, kTable, kOne}), 1), kAccepted);
  EXPECT_EQ(verdict(joined({{2}, kTable, kZero}), 1), kAccepted);
  EXPECT_EQ(verdict(joined({{2}, kTable, {1}}), 1), kAccepted);
  EXPECT_EQ(verdict(joined({{2}, kTable, {0, 1, 2, 3, 4}}), 1), kAccepted);
  const auto back = *testing::decode(*codec_of("gcomp"), one_chunk(joined({{2}, kTable, kOne}), 0).view(), 1);
  EXPECT_EQ(back[0], 1.0F);
}

TEST(GcompRefusals, ChunkHead) {
  EXPECT_EQ(verdict({1}, 5), kAccepted);
  EXPECT_EQ(verdict({0, 1, 2, 3, 4}, 1), kAccepted);
  EXPECT_EQ(verdict({0, 1, 2, 3}, 1), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0, 1, 2, 3, 4, 5}, 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 0}, 1), ErrorCode::kCorrupt);
  for (const int head : {0x04, 0x05, 0x20, 0x21, 0x80, 0x81, 0x41}) {
    EXPECT_EQ(verdict({head, 1, 2, 3, 4}, 1), ErrorCode::kCorrupt) << head;
  }
  // A level without a static table, or in a whole chunk; a fourth static table; bit 7.
  for (const int head : {0x06, 0x26, 0x82, 0xE2}) {
    EXPECT_EQ(verdict(joined({{head}, kTable, kOne}), 1), ErrorCode::kCorrupt) << head;
  }
  EXPECT_EQ(verdict(joined({{3}, kCutTable, {1}}), 1), kAccepted);
  for (const int head : {0x07, 0x23, 0x83}) {
    EXPECT_EQ(verdict(joined({{head}, kCutTable, {1}}), 1), ErrorCode::kCorrupt) << head;
  }
  EXPECT_EQ(verdict({2}, 1), ErrorCode::kTruncated);
}

TEST(GcompRefusals, HeadsOfHalves) {
  const auto cut = [](int head) { return verdict(joined({{head}, kCutTable, {1}}), 1, "gcomp:values=fp16"); };
  EXPECT_EQ(cut(0x87), kAccepted);  // bfloat16
  EXPECT_EQ(cut(0x8B), kAccepted);  // float16
  EXPECT_EQ(cut(0x03), kAccepted);
  EXPECT_EQ(verdict(joined({{0x87}, kCutTable, {1}}), 1), ErrorCode::kCorrupt);  // of float32
  // No type, or none that there is; a static table.
  for (const int head : {0x83, 0x8F, 0x93, 0x9F, 0xA7, 0xE7}) {
    EXPECT_EQ(cut(head), ErrorCode::kCorrupt) << head;
  }
  for (const int head : {0x84, 0x85, 0x86}) {  // other modes
    EXPECT_EQ(verdict({head, 1, 2, 3, 4}, 1, "gcomp:values=bf16"), ErrorCode::kCorrupt) << head;
  }
}

// lossless=on has whole chunks of halves, where the others have cut ones.
TEST(GcompRefusals, HeadsOfLosslessHalves) {
  const std::string spec = "gcomp:lossless=on,values=fp16";
  const auto whole = [](int head, std::string_view of) {
    return verdict(joined({{head}, kTable, {1}}), 1, of);
  };
  for (const int head : {0x86, 0x8A, 0x02}) EXPECT_EQ(whole(head, spec), kAccepted) << head;
  for (const int head : {0x82, 0x8E, 0x92, 0xA6, 0xE6}) {
    EXPECT_EQ(whole(head, spec), ErrorCode::kCorrupt) << head;
  }
  EXPECT_EQ(whole(0x86, "gcomp:lossless=on"), ErrorCode::kCorrupt);  // of float32
  EXPECT_EQ(whole(0x86, "gcomp:values=fp16"), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(joined({{0x03}, kCutTable, {1}}), 1, spec), kAccepted);
  EXPECT_EQ(verdict(joined({{0x87}, kCutTable, {1}}), 1, spec), ErrorCode::kCorrupt);
}

// An escape has the bits of level 0: of bfloat16 one byte, of float16 eleven.
TEST(GcompRefusals, WidthsOfHalves) {
  const std::vector<float> values = {1, -0x1p60F, 0x1p-90F, 1.5F, -1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  for (const char* spec : {"gcomp:values=bf16", "gcomp:cut=18,values=bf16"}) {
    const auto codec = codec_of(spec);
    const auto part = *testing::encode(*codec, values);
    EXPECT_EQ(to_ints(part.payload)[0], 0x87);
    EXPECT_EQ(*testing::decode(*codec, part.view(), values.size()), values);
    const auto zeros = testing::encode(*codec, std::vector<float>(values.size(), 0.0F));
    EXPECT_EQ(zeros->payload.size(), 1U);
  }
}

TEST(GcompRefusals, OwnTable) {
  const auto table = [](const Ints& bytes) { return verdict(joined({{2}, bytes, {1}}), 1); };
  EXPECT_EQ(table({0x10, 0, 1, 1, 127, 1}), kAccepted);
  EXPECT_EQ(table({0x11, 0, 0}), kAccepted);                                // escape and zero, no exponents
  EXPECT_EQ(table({0x10, 1, 0}), kAccepted);                                // zero and tiny
  EXPECT_EQ(table({0x10, 0x11, 0}), ErrorCode::kCorrupt);                   // something besides tiny
  EXPECT_EQ(table({0x10, 0, 1, 1, 255, 1}), kAccepted);                     // NaN and Inf
  EXPECT_EQ(table({0x10, 0, 1, 1, 0, 1}), ErrorCode::kCorrupt);             // exponent 0 isn't in a window
  EXPECT_EQ(table({0x11, 0, 1, 0, 127}), ErrorCode::kCorrupt);              // a window of none
  EXPECT_EQ(table({0x00, 0, 1, 2, 254, 0x11}), kAccepted);                  // 254 and 255
  EXPECT_EQ(table({0x00, 0, 1, 2, 255, 0x11}), ErrorCode::kCorrupt);        // 256
  EXPECT_EQ(table({0x10, 0, 1, 1, 127, 0x11}), ErrorCode::kCorrupt);        // set padding
  EXPECT_EQ(table({0x10, 0, 1, 2, 127, 0x01}), ErrorCode::kCorrupt);        // an unused end
  EXPECT_EQ(table({0x10, 0, 1, 2, 127, 0x10}), ErrorCode::kCorrupt);        // an unused beginning
  EXPECT_EQ(table({0x10, 0, 1, 3, 127, 0x02, 0x02}), kAccepted);            // a gap inside is fine
  EXPECT_EQ(table({0x10, 0, 1, 1, 127, 2}), ErrorCode::kCorrupt);           // 3/4 of a code
  EXPECT_EQ(table({0x11, 0, 1, 1, 127, 1}), ErrorCode::kCorrupt);           // 3/2
  EXPECT_EQ(table({0x10, 0, 0}), ErrorCode::kCorrupt);                      // a single symbol
  EXPECT_EQ(table({0x00, 0, 0}), ErrorCode::kCorrupt);                      // none
  EXPECT_EQ(table({0x19, 0, 1, 1, 127, 1}), ErrorCode::kCorrupt);           // 9 bits
  EXPECT_EQ(table({0x10, 9, 1, 1, 127, 1}), ErrorCode::kCorrupt);           // 9 bits of tiny
  EXPECT_EQ(table({0x10, 0, 1, 3, 127, 0x12, 0x0F}), ErrorCode::kCorrupt);  // 15 bits
  EXPECT_EQ(table({0x10, 0, 2, 1, 127, 1}), ErrorCode::kCorrupt);           // level 1 in a whole chunk
  for (std::size_t bytes = 0; bytes < kTable.size(); ++bytes) {
    const Ints cut(kTable.begin(), kTable.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_EQ(verdict(joined({{2}, cut}), 1), ErrorCode::kTruncated) << bytes;
  }
}

TEST(GcompRefusals, WindowsOfLevels) {
  const auto table = [](const Ints& bytes) { return verdict(joined({{3}, bytes, {1}}), 1); };
  EXPECT_EQ(table({0x11, 0}), kAccepted);
  EXPECT_EQ(table({0x10, 1, 1, 255, 1}), kAccepted);
  EXPECT_EQ(table({0x10, 2, 1, 254, 1}), kAccepted);
  EXPECT_EQ(table({0x10, 2, 1, 255, 1}), ErrorCode::kCorrupt);  // a cut NaN
  EXPECT_EQ(table({0x10, 0x80, 1, 254, 1}), kAccepted);
  EXPECT_EQ(table({0, 0x80, 2, 254, 0x11}), ErrorCode::kCorrupt);
  EXPECT_EQ(table({0, 0x41, 1, 127, 1, 1, 127, 1}), kAccepted);
  EXPECT_EQ(table({0x10, 0x41, 1, 127, 1, 1, 127, 1}), ErrorCode::kCorrupt);  // 3/2
  EXPECT_EQ(verdict({3, 0, 0x41, 1, 127, 1, 1, 127}, 1), ErrorCode::kTruncated);
  // 30 exponents from the lowest to the highest, of whatever levels.
  EXPECT_EQ(table({0, 3, 1, 100, 1, 1, 129, 1}), kAccepted);
  EXPECT_EQ(table({0, 3, 1, 100, 1, 1, 130, 1}), ErrorCode::kCorrupt);
  EXPECT_EQ(table({0, 3, 1, 129, 1, 1, 100, 1}), kAccepted);
  EXPECT_EQ(table({0, 3, 1, 130, 1, 1, 100, 1}), ErrorCode::kCorrupt);
  Ints wide = {0, 1, 30, 100, 1};
  wide.resize(5 + 13, 0);
  wide.push_back(0x10);
  EXPECT_EQ(table(wide), kAccepted);
  wide = {0, 1, 31, 100, 1};
  wide.resize(5 + 14, 0);
  wide.push_back(0x01);
  EXPECT_EQ(table(wide), ErrorCode::kCorrupt);
}

TEST(GcompRefusals, StaticTable) {
  for (const int id : {1, 2, 3}) {
    for (const int head : {2, 3 | 1 << 2, 3 | 7 << 2}) {
      const auto top = [&](int exponent) { return verdict({head | id << 5, exponent, 1}, 1); };
      EXPECT_EQ(top(12), kAccepted);
      EXPECT_EQ(top(254), kAccepted);
      EXPECT_EQ(top(11), ErrorCode::kCorrupt);
      EXPECT_EQ(top(255), ErrorCode::kCorrupt);
      EXPECT_EQ(top(0), ErrorCode::kCorrupt);
      EXPECT_EQ(verdict({head | id << 5}, 1), ErrorCode::kTruncated);
    }
  }
}

TEST(GcompRefusals, Block) {
  const auto block = [](const Ints& bytes) { return verdict(joined({{2}, kTable, bytes}), 1); };
  EXPECT_EQ(block({}), ErrorCode::kTruncated);
  for (const int mode : {3, 4, 5, 7}) EXPECT_EQ(block({mode}), ErrorCode::kCorrupt);
  EXPECT_EQ(block({1, 0}), ErrorCode::kCorrupt);
  EXPECT_EQ(block({0, 1, 2, 3}), ErrorCode::kTruncated);
  EXPECT_EQ(block({0, 1, 2, 3, 4, 5}), ErrorCode::kCorrupt);
  for (std::size_t bytes = 1; bytes < kOne.size(); ++bytes) {
    EXPECT_EQ(block(Ints(kOne.begin(), kOne.begin() + static_cast<std::ptrdiff_t>(bytes))),
              ErrorCode::kTruncated)
        << bytes;
  }
  EXPECT_EQ(block(joined({kOne, {0}})), ErrorCode::kCorrupt);  // a byte more
  const auto coded = [&](const Ints& stream, const Ints& lane) { return block(block_with(stream, lane)); };
  EXPECT_EQ(coded({0, 0, 0}, {1, 0, 2, 0}), kAccepted);
  EXPECT_EQ(coded({0, 0}, {1, 0, 2, 0}), ErrorCode::kTruncated);         // 2 bytes of a mantissa
  EXPECT_EQ(coded({9, 0, 0, 0}, {1, 0, 2, 0}), ErrorCode::kCorrupt);     // an unread byte
  EXPECT_EQ(coded({9, 9, 0, 0, 0}, {1, 0, 2, 0}), ErrorCode::kCorrupt);  // an unread word
  EXPECT_EQ(coded({0, 0, 0}, {1, 0, 0, 0}), ErrorCode::kCorrupt);        // a lane of 0 bits
  EXPECT_EQ(coded({0, 0, 0}, {0xFF, 0xFF, 0, 0}), ErrorCode::kCorrupt);  // 15 bits
  EXPECT_EQ(coded({0, 0, 0}, {0, 0, 0, 0}), ErrorCode::kCorrupt);        // no end bit at all
  EXPECT_EQ(coded({0, 0, 0}, {3, 0, 2, 0}), ErrorCode::kCorrupt);        // bits left in the lane
  EXPECT_EQ(coded({0, 0, 0}, {1, 0, 4, 0}), ErrorCode::kCorrupt);        // 17 left
  EXPECT_EQ(coded({0, 0, 0}, {1, 0, 1, 0}), ErrorCode::kTruncated);      // 15 left: a word is missing
  EXPECT_EQ(coded({0, 0, 0, 0, 0}, {1, 0, 1, 0}), ErrorCode::kCorrupt);  // it is there: 31 left
}

TEST(GcompRefusals, LanesOfMantissas) {
  // One element 1.0 of 24 bits at level 0, all in the lane; and of 3 bits at level 7.
  const auto coded = [](const Ints& stream, const Ints& mantissas) {
    return verdict(joined({{3}, kCutTable, block_with(stream, joined({{1, 0, 2, 0}, mantissas}))}), 1);
  };
  EXPECT_EQ(coded({}, {0, 0, 0, 1}), kAccepted);
  EXPECT_EQ(coded({}, {0, 0, 0, 3}), ErrorCode::kCorrupt);               // a bit left, 1
  EXPECT_EQ(coded({}, {0, 0, 0, 2}), ErrorCode::kCorrupt);               // a bit left, 0
  EXPECT_EQ(coded({}, {0, 0, 0, 0}), ErrorCode::kCorrupt);               // no end bit
  EXPECT_EQ(coded({}, {0, 0, 0x80, 0}), ErrorCode::kTruncated);          // 23 bits: a word is missing
  EXPECT_EQ(coded({0, 0, 0, 0}, {0, 0, 0x80, 0}), ErrorCode::kCorrupt);  // it is there: 31 left
  EXPECT_EQ(coded({}, {0, 0, 0}), ErrorCode::kTruncated);
  const auto seventh = [](const Ints& mantissas) {
    const Ints block = block_with({}, joined({{1, 0, 2, 0}, mantissas}));
    return verdict(joined({{3, 0x10, 0x80, 1, 127, 1}, block}), 1);
  };
  EXPECT_EQ(seventh({0xF, 0, 0, 0}), kAccepted);
  EXPECT_EQ(seventh({0x1F, 0, 0, 0}), ErrorCode::kCorrupt);
  EXPECT_EQ(seventh({0x7, 0, 0, 0}), ErrorCode::kTruncated);
}

// Whatever is missing at the end is called missing, not broken.
TEST(GcompRefusals, AMissingLastByteIsTruncated) {
  for (const char* spec : {"gcomp:cut=6", "gcomp:cut=12", "gcomp:cut=18", "gcomp:lossless=on"}) {
    for (const std::size_t count : {30U, 301U, 515U, 1000U}) {
      const auto part = *testing::encode(*codec_of(spec), testing::normal_values(count, count));
      ASSERT_GE(std::to_integer<int>(part.payload[0]) & 3, 2) << spec << " " << count;
      testing::Encoded cut = part;
      cut.payload.pop_back();
      --cut.chunk_ends[0];
      EXPECT_EQ(verdict(cut, count), ErrorCode::kTruncated) << spec << " " << count;
    }
  }
}

TEST(GcompRefusals, Escapes) {
  // Two codes of one bit each, 0 and 1; the lane has one of them. An escape's exponent is taken before its
  // mantissa.
  const auto coded = [&](const Ints& table, int code, const Ints& stream) {
    return verdict(joined({{2}, table, block_with(stream, {code, 0, 2, 0})}), 1);
  };
  // Exponent 127 and the escape.
  const auto escaped = [&](const Ints& stream) { return coded({1, 0, 1, 1, 127, 1}, 1, stream); };
  EXPECT_EQ(escaped({1, 2, 3, 126}), kAccepted);
  EXPECT_EQ(escaped({1, 2, 3, 127}), ErrorCode::kCorrupt);  // has a code
  EXPECT_EQ(escaped({1, 2, 3, 255}), kAccepted);
  EXPECT_EQ(escaped({1, 2, 3, 0}), kAccepted);             // a subnormal
  EXPECT_EQ(escaped({0, 0, 0x80, 0}), kAccepted);          // -0
  EXPECT_EQ(escaped({0, 0, 0, 0}), ErrorCode::kCorrupt);   // +0 has its own symbol
  EXPECT_EQ(escaped({2, 3, 126}), ErrorCode::kTruncated);  // 2 bytes of a mantissa
  EXPECT_EQ(escaped({2, 3, 127}), ErrorCode::kTruncated);  // what is missing comes first
  EXPECT_EQ(escaped({}), ErrorCode::kTruncated);           // no exponent
  EXPECT_EQ(escaped({9, 1, 2, 3, 126}), ErrorCode::kCorrupt);
  // Escape and tiny: an escape for what is tiny.
  EXPECT_EQ(coded({1, 1, 0}, 0, {1, 2, 3, 126}), kAccepted);
  EXPECT_EQ(coded({1, 1, 0}, 0, {1, 2, 3, 0}), ErrorCode::kCorrupt);
  EXPECT_EQ(coded({1, 1, 0}, 1, {1, 2, 3}), kAccepted);
  EXPECT_EQ(coded({1, 1, 0}, 1, {0, 0, 0}), ErrorCode::kCorrupt);
}

TEST(GcompRefusals, EscapesOfCutChunks) {
  // As above, with 24 zeros in the lane of mantissas.
  const auto escaped = [](const Ints& table, int code, int exponent) {
    const Ints block = block_with({exponent}, {code, 0, 2, 0, 0, 0, 0, 1});
    return verdict(joined({{3}, table, block}), 1);
  };
  const Ints own = {1, 1, 1, 127, 1};
  EXPECT_EQ(escaped(own, 1, 126), kAccepted);
  EXPECT_EQ(escaped(own, 1, 255), kAccepted);
  EXPECT_EQ(escaped(own, 1, 127), ErrorCode::kCorrupt);
  EXPECT_EQ(escaped(own, 1, 0), ErrorCode::kCorrupt);  // nothing is tiny here
  // A code of another level of the exponent, behind the escape's, doesn't forbid its escape.
  EXPECT_EQ(escaped({1, 4, 1, 127, 1}, 0, 127), kAccepted);
}

TEST(GcompRefusals, BlockIndex) {
  const std::uint64_t count = 2 * 32768 + 1;
  const auto index = [&](const Ints& ends, const Ints& blocks) {
    return verdict(joined({{2}, kTable, ends, blocks}), count);
  };
  EXPECT_EQ(index({1, 0, 0, 0, 2, 0, 0, 0}, {1, 1, 1}), kAccepted);
  EXPECT_EQ(index({1, 0, 0, 0, 2, 0, 0, 0}, joined({{1, 1}, kOne})), kAccepted);
  EXPECT_EQ(index({1, 0, 0, 0, 2, 0, 0, 0}, {1, 1}), ErrorCode::kTruncated);
  EXPECT_EQ(index({1, 0, 0, 0, 2, 0, 0, 0}, {1, 1, 1, 0}), ErrorCode::kCorrupt);
  EXPECT_EQ(index({0, 0, 0, 0, 1, 0, 0, 0}, {1, 1}), ErrorCode::kCorrupt);
  EXPECT_EQ(index({1, 0, 0, 0, 1, 0, 0, 0}, {1, 1}), ErrorCode::kCorrupt);
  const auto empty = one_chunk(joined({{2}, kTable, {1, 0, 0, 0, 1, 0, 0, 0, 1, 1}}), 0);
  EXPECT_EQ(testing::decode(*codec_of("gcomp"), empty.view(), count).error().message,
            "gcomp chunk 0: the ends of blocks don't grow");
  EXPECT_EQ(index({2, 0, 0, 0, 1, 0, 0, 0}, {1, 1, 1}), ErrorCode::kCorrupt);
  EXPECT_EQ(index({1, 0, 0, 0, 4, 0, 0, 0}, {1, 1, 1}), ErrorCode::kTruncated);
  EXPECT_EQ(index({1, 0, 0, 0, 255, 255, 255, 255}, {1, 1, 1}), ErrorCode::kTruncated);
  EXPECT_EQ(index({1, 0, 0, 0, 2, 0, 0}, {}), ErrorCode::kTruncated);
  for (std::size_t bytes = 0; bytes < 8; ++bytes) {
    EXPECT_EQ(index(Ints(bytes, 1), {}), ErrorCode::kTruncated) << bytes;
  }
}

TEST(GcompRefusals, PartIndexAndScalar) {
  EXPECT_EQ(verdict(one_chunk({1}, 1), 5), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(one_chunk({1}, 0), 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(one_chunk({1}, 0), 262145), ErrorCode::kCorrupt);
}

TEST(GcompRefusals, FlippedBitsAndCutsOfLargeParts) {
  // Several lanes and blocks, every mode of both: any answer will do, but none may write outside.
  CounterRng random(21);
  std::vector<float> values = testing::normal_values(80000, 1);
  std::vector<float> significance = testing::normal_values(80000, 2);
  for (float& number : significance) number *= 3000;
  for (std::size_t i = 32768; i < 65536; ++i) values[i] = 0;
  const auto codec = codec_of("gcomp");
  for (const auto& weights : {std::vector<float>{}, significance}) {
    const auto part = encode_significant(*codec, values, weights);
    for (int round = 0; round < 100; ++round) {
      testing::Encoded broken = part;
      // Most of them where table, index and lanes are.
      const std::uint64_t where = random.next() % (round % 4 == 0 ? part.payload.size() : 400);
      broken.payload[where] ^= static_cast<std::byte>(1U << random.next() % 8);
      verdict(broken, values.size());
      broken = part;
      broken.payload.resize(random.next() % part.payload.size());
      broken.payload.shrink_to_fit();
      if (broken.payload.empty()) continue;
      broken.chunk_ends[0] = static_cast<std::uint32_t>(broken.payload.size());
      EXPECT_NE(verdict(broken, values.size()), kAccepted);
    }
  }
}

}  // namespace
}  // namespace deltawire::gcomp_bytes_test
