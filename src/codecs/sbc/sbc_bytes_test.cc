// The bytes of sbc, how many they are, and every form that a decoder must refuse.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/bits.h"
#include "base/brief_testing.h"
#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sbc_bytes_test {
namespace {

using namespace testing;

// Each value is sent as the mean, which is the scalar, or not at all. What is left is one rounded
// subtraction: half a step of the result, which is no larger than the bound.
const testing::Expects kExpects{{
    .codec = "sbc",
    .error_bound =
        [](const testing::EncodedValue& value) {
          return std::fmax(std::fabs(value.x()), std::fabs(value.x() - value.scalar()));
        },
    .conservation_bound =
        [](const testing::EncodedValue& value) { return std::fabs(value.x() - value.scalar()) * 0x1p-24; },
    .tiny_signs = {1, 0, 0, 0},
    .skips_zeros = true,
    .limits = {"sbc:p=0.999"},
}};

std::uint64_t section_bits(const testing::Encoded& part, std::uint64_t count, std::string_view name) {
  std::vector<Section> sections;
  EXPECT_TRUE(codec_of("sbc")->describe(part.view(), count, sections));
  for (const Section& section : sections) {
    if (section.name == name) return section.bits;
  }
  return 0;
}

// Ones at positions with these gaps between them, from position 0 on.
Floats ones_with_gaps(const std::vector<std::size_t>& gaps) {
  Floats values = {1};
  for (const std::size_t gap : gaps) {
    values.resize(values.size() + gap, 0.0F);
    values.push_back(1);
  }
  return values;
}

TEST(SbcBytes, ByHand) {
  // Positions 1 and 5: one gap in a span of 4, so b = 1; the gap of 3 is 1, 0, then the low bit 1.
  const auto two = coded("sbc:p=0.25", {0, 3, 0, -1, 0, 5, 0, 0});
  EXPECT_EQ(to_ints(two.payload), (Ints{1, 2, 0, 1, 0, 0, 0, 0b101}));
  EXPECT_EQ(two.scalar, bits_of(4.0F));
  // Positions 0, 6, 7: two gaps in a span of 7, b = 1; 5 is 110 1, 0 is 0 0.
  const auto three = coded("sbc:p=0.3", {-1, 0, 0, 0, 0, 0, -2, -3, 0, 0});
  EXPECT_EQ(to_ints(three.payload), (Ints{1, 3, 0, 0, 0, 0, 0, 0b001011}));
  EXPECT_EQ(three.scalar, bits_of(-2.0F));
  // Positions 258 and 259 side by side: b = 0, and the gap of 0 is a zero.
  Floats late(300, 0.0F);
  late[258] = late[259] = 1;
  EXPECT_EQ(to_ints(coded("sbc", late).payload), (Ints{0, 2, 0, 2, 1, 0, 0, 0}));
}

TEST(SbcBytes, WithoutGaps) {
  EXPECT_EQ(to_ints(coded("sbc", {-2.5F}).payload), (Ints{0, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(to_ints(coded("sbc", {0, 0, 7, 0}).payload), (Ints{0, 1, 0, 2, 0, 0, 0}));
  const auto zeros = coded("sbc", Floats(70000, 0.0F));
  EXPECT_EQ(to_ints(zeros.payload), (Ints{0, 0, 0}));
  EXPECT_EQ(zeros.scalar, 0U);
  EXPECT_TRUE(coded("sbc", {}).payload.empty());
}

TEST(SbcBytes, Escape) {
  // 500 gaps of 19, then one of 30,978, which at b = 6 would take 484 ones.
  std::vector<std::size_t> gaps(500, 19);
  gaps.push_back(30978);
  const Floats x = ones_with_gaps(gaps);
  const auto part = coded("sbc:p=0.5", x);
  ASSERT_EQ(part.payload[0], std::byte{6});
  EXPECT_EQ(section_bits(part, x.size(), "positions"), 500 * 7 + 24 + 32U);
  const Ints bytes = to_ints(part.payload);
  // 3,500 bits are 437 bytes and 4 bits: four bits of the code before, 24 ones, 30978 = 0x7902, four pad
  // bits.
  EXPECT_EQ(Ints(bytes.end() - 8, bytes.end()), (Ints{0xF4, 0xFF, 0xFF, 0x2F, 0x90, 0x07, 0x00, 0x00}));
  EXPECT_EQ(*testing::decode(*codec_of("sbc"), part.view(), x.size()), x);
}

TEST(SbcBytes, FourLanesTakeGapsInTurn) {
  // 511 gaps: 1 in lane 0, 0 in the others, so that b = 0 and their codes are 10 and 0.
  std::vector<std::size_t> gaps(511, 0);
  for (std::size_t i = 0; i < gaps.size(); i += 4) gaps[i] = 1;
  const auto part = coded("sbc:p=0.9", ones_with_gaps(gaps));
  Ints expected = {2 << 5, 0, 2, 0, 0, 0, 0, 32, 0, 16, 0, 16, 0};
  expected.insert(expected.end(), 32, 0b01010101);
  expected.insert(expected.end(), 48, 0);
  EXPECT_EQ(to_ints(part.payload), expected);
}

TEST(SbcBytes, LanesFollowTheNumberOfPositions) {
  for (const auto& [count, first_byte] : std::vector<std::pair<std::size_t, int>>{
           {511, 0}, {512, 2 << 5}, {4095, 2 << 5}, {4096, 3 << 5}, {16384, 3 << 5}}) {
    const Floats x(count, 1.0F);
    const auto part = coded("sbc:p=0.99999", x);
    EXPECT_EQ(std::to_integer<int>(part.payload[0]), first_byte) << count;
    EXPECT_EQ(part.chunk_ends.size(), 1U);
    EXPECT_EQ(*testing::decode(*codec_of("sbc"), part.view(), count), x);
  }
}

TEST(SbcBytes, ChunksHold16384PositionsAndDecodeAlone) {
  const Floats x(16386, 1.0F);
  const auto part = coded("sbc:p=0.99999", x);
  ASSERT_EQ(part.chunk_ends.size(), 2U);
  testing::Encoded second = part;
  second.payload.erase(second.payload.begin(), second.payload.begin() + part.chunk_ends[0]);
  second.chunk_ends = {static_cast<std::uint32_t>(second.payload.size())};
  EXPECT_EQ(to_ints(second.payload), (Ints{0, 2, 0, 0, 64, 0, 0, 0}));  // first position 16384
  const auto back = *testing::decode(*codec_of("sbc"), second.view(), x.size());
  EXPECT_EQ(back[16383], 0.0F);
  EXPECT_EQ(back[16384] + back[16385], 2.0F);
}

// b* + 1 / (1 - (1 - p)^(2^b*)), the paper's eq. 5. The paper itself prints 8.38 for p = 0.01, which is what
// b* = 7 would give.
TEST(SbcBytes, PositionBitsAreGolombsExpectation) {
  const std::tuple<const char*, double, double> published[] = {
      {"sbc:p=5%", 5.7861, 50000}, {"sbc:p=1%", 8.1079, 10000}, {"sbc:p=0.1%", 11.4947, 1000}};
  const Floats x = testing::normal_values(1000000, 1);
  for (const auto& [spec, bits, positions] : published) {
    const auto part = coded(spec, x);
    const double measured = static_cast<double>(section_bits(part, x.size(), "positions")) / positions;
    RecordProperty(spec, std::to_string(measured));
    EXPECT_NEAR(measured, bits, 0.03 * bits) << spec;
    EXPECT_LE(static_cast<double>(part.payload.size()) * 8, 1.03 * bits * positions) << spec;
  }
}

// Bounds must hold for what is hardest to code: runs as far apart as makes each gap between them an escape.
TEST(SbcBytes, APartHasFewerThan2To32Elements) {
  const auto bytes = [](std::uint64_t count) {
    return codec_of("sbc")->sizes({nullptr, count, DType::kF32}).payload_bytes;
  };
  EXPECT_LT(bytes(0xFFFFFFFF), std::uint64_t{1} << 32);
  EXPECT_EQ(bytes(0x100000000), ~std::uint64_t{0});
}

TEST(SbcBytes, SizesAreBounds) {
  struct Hard {
    const char* spec;
    std::size_t run;
    std::size_t gap;
  };
  for (const auto& [spec, run, gap] : {Hard{"sbc:p=0.1%", 13, 24 * 512},
                                       {"sbc", 15, 24 * 64},
                                       {"sbc", 1, 100},
                                       {"sbc:p=0.25", 16, 48},
                                       {"sbc:p=0.5", 24, 24},
                                       {"sbc:p=0.6", 1, 0},
                                       {"sbc:p=0.999", 1, 0},
                                       {"sbc:p=0.999", 100, 1}}) {
    for (const std::size_t count : {40U, 3000U, 300000U}) {
      Floats x(count, 0.0F);
      for (std::size_t i = 0; i < count; i += run + gap) {
        for (std::size_t j = i; j < std::min(count, i + run); ++j) x[j] = 1;
      }
      const auto part = testing::encode(*codec_of(spec), x);  // checks the bounds
      ASSERT_TRUE(part) << spec;
      const auto back = testing::decode(*codec_of(spec), part->view(), count);
      ASSERT_TRUE(back) << spec << ", runs of " << run;
      for (std::size_t i = 0; i < count; ++i) ASSERT_LE(back->at(i), x[i]) << spec << " " << i;
    }
  }
}

// Every form that a decoder must refuse, in both ways of decoding and in describe.

ErrorCode verdict(const testing::Encoded& part, std::uint64_t count) {
  return testing::verdict_of("sbc", part, count);
}

ErrorCode verdict(const Ints& bytes, std::uint64_t count, std::uint32_t scalar = bits_of(-1.0F)) {
  return verdict(one_chunk(bytes, scalar), count);
}

TEST(SbcRefusals, Empty) {
  EXPECT_EQ(verdict({0, 0, 0}, 9, 0), kAccepted);
  EXPECT_EQ(verdict({0, 0, 0}, 9), ErrorCode::kCorrupt);  // a mean of nothing
  EXPECT_EQ(verdict({0, 0}, 9, 0), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0, 0, 0, 0}, 9, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 0, 0}, 9, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({64, 0, 0}, 9, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 0, 0}, 0, 0), ErrorCode::kCorrupt);
}

TEST(SbcRefusals, OnePosition) {
  EXPECT_EQ(verdict({0, 1, 0, 8, 0, 0, 0}, 9), kAccepted);
  EXPECT_EQ(verdict({0, 1, 0, 8, 0, 0, 0}, 9, 0), ErrorCode::kCorrupt);  // of mean 0
  EXPECT_EQ(verdict({0, 1, 0, 9, 0, 0, 0}, 9), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 1, 0, 0, 0, 0, 1}, 9), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 1, 0, 8, 0, 0}, 9), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0, 1, 0, 8, 0, 0, 0, 0}, 9), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 1, 0, 8, 0, 0, 0}, 9), ErrorCode::kCorrupt);  // b without gaps
  EXPECT_EQ(verdict({64, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 9), ErrorCode::kCorrupt);
}

TEST(SbcRefusals, MeanMustBeFinite) {
  EXPECT_EQ(verdict({0, 1, 0, 8, 0, 0, 0}, 9, 1), kAccepted);  // the smallest subnormal
  for (const std::uint32_t bits : {0x80000000U, 0x7F800000U, 0x7FC00000U, 0xFF800000U, 0xFFFFFFFFU}) {
    EXPECT_EQ(verdict({0, 1, 0, 8, 0, 0, 0}, 9, bits), ErrorCode::kCorrupt) << bits;
    EXPECT_EQ(verdict({0, 0, 0}, 9, bits), ErrorCode::kCorrupt) << bits;
  }
}

// Two positions: 0, and 1 + the gap; with b = 0 a gap g is g ones and a zero.
TEST(SbcRefusals, Gaps) {
  EXPECT_EQ(verdict({0, 2, 0, 0, 0, 0, 0, 0b000}, 2), kAccepted);
  EXPECT_EQ(verdict({0, 2, 0, 0, 0, 0, 0, 0b001}, 2), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 2, 0, 0, 0, 0, 0, 0b001}, 3), kAccepted);
  EXPECT_EQ(verdict({0, 2, 0, 0, 0, 0, 0, 0b101}, 3), ErrorCode::kCorrupt);  // a set pad bit
  EXPECT_EQ(verdict({0, 2, 0, 0, 0, 0, 0, 0b001, 0}, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 2, 0, 0, 0, 0, 0}, 3), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0, 2, 0, 0, 0, 0, 0, 255}, 300), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0, 3, 0, 0, 0, 0, 0, 0b001}, 3), ErrorCode::kCorrupt);  // 3 of 3, the last beyond
  EXPECT_EQ(verdict({24, 2, 0, 0, 0, 0, 0, 2, 0, 0, 0}, 3), kAccepted);      // 0, then 1 in 24 bits
  EXPECT_EQ(verdict({25, 2, 0, 0, 0, 0, 0, 2, 0, 0, 0}, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({30, 2, 0, 0, 0, 0, 0, 2, 0, 0, 0}, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 1, 64, 0, 0, 0, 0, 0}, 70000), ErrorCode::kCorrupt);  // 16,385 positions
}

TEST(SbcRefusals, Escape) {
  EXPECT_EQ(verdict({0, 2, 0, 0, 0, 0, 0, 255, 255, 255, 24, 0, 0, 0}, 100), kAccepted);
  EXPECT_EQ(verdict({0, 2, 0, 0, 0, 0, 0, 255, 255, 255, 23, 0, 0, 0}, 100), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 2, 0, 0, 0, 0, 0, 255, 255, 255, 48, 0, 0, 0}, 100), kAccepted);
  EXPECT_EQ(verdict({1, 2, 0, 0, 0, 0, 0, 255, 255, 255, 47, 0, 0, 0}, 100), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 2, 0, 0, 0, 0, 0, 255, 255, 255, 99, 0, 0, 0}, 100), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 2, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255}, 100), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 2, 0, 0, 0, 0, 0, 255, 255, 255, 24, 0, 0}, 100), ErrorCode::kTruncated);
}

// Six positions side by side in four lanes: gaps 0 and 4 in lane 0, one bit each.
TEST(SbcRefusals, Lanes) {
  EXPECT_EQ(verdict({64, 6, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0}, 6), kAccepted);
  EXPECT_EQ(verdict({64, 6, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0}, 5), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({64, 6, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0}, 6), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({64, 6, 0, 0, 0, 0, 0, 1, 0, 1, 0, 3, 0, 0, 0, 0, 0}, 6), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({64, 6, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0}, 6), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({64, 6, 0, 0, 0, 0, 0, 2, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0}, 6), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({64, 6, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 4, 0, 0, 0}, 6), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({64, 6, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 2, 0, 0}, 6), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({64, 6, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1}, 6), ErrorCode::kTruncated);
  // Two lanes, and those of the unused top bit.
  for (const int code : {32, 128, 160, 192, 224}) {
    EXPECT_EQ(verdict({code, 6, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0}, 6), ErrorCode::kCorrupt)
        << code;
  }
  // Eight lanes for one gap: seven are empty.
  EXPECT_EQ(verdict({96, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 6), kAccepted);
  EXPECT_EQ(verdict({96, 2, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 6),
            ErrorCode::kCorrupt);
}

TEST(SbcRefusals, ChunkIndex) {
  testing::Encoded part = one_chunk({0, 1, 0, 8, 0, 0, 0}, bits_of(1.0F));
  part.chunk_ends = {8};
  EXPECT_EQ(verdict(part, 9), ErrorCode::kTruncated);
  part.chunk_ends = {6};
  EXPECT_EQ(verdict(part, 9), ErrorCode::kCorrupt);
  for (const std::vector<std::uint32_t>& ends : {std::vector<std::uint32_t>{7, 7}, {0, 7}, {7, 4}, {}}) {
    part.chunk_ends = ends;
    EXPECT_EQ(verdict(part, 9), ErrorCode::kCorrupt);
  }
}

}  // namespace
}  // namespace deltawire::sbc_bytes_test
