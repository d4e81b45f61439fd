// Every form that a 3lc decoder must refuse, in both ways of decoding and in describe.
#include <gtest/gtest.h>

#include "codecs/codec_testing.h"

namespace deltawire::threelc_refusals_test {
namespace {

using testing::bits_of;
using testing::codec_of;
using testing::kAccepted;
using testing::one_chunk;
using Ints = std::vector<int>;

ErrorCode verdict(const testing::Encoded& part, std::uint64_t count) {
  return testing::verdict_of("3lc", part, count);
}

ErrorCode verdict(const Ints& bytes, std::uint64_t count, std::uint32_t scalar = bits_of(1.0F)) {
  return verdict(one_chunk(bytes, scalar), count);
}

TEST(ThreelcRefusals, ModeByte) {
  EXPECT_EQ(verdict({0, 121}, 5), kAccepted);
  EXPECT_EQ(verdict({3, 121}, 5), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({255, 121}, 5), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0}, 5), ErrorCode::kTruncated);
}

TEST(ThreelcRefusals, Base3) {
  EXPECT_EQ(verdict({0, 242}, 5), kAccepted);
  EXPECT_EQ(verdict({0, 243}, 5), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 121}, 6), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0, 121, 121}, 5), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 175}, 3), kAccepted);
  EXPECT_EQ(verdict({0, 171}, 3), ErrorCode::kCorrupt);  // pads of digit 0
  EXPECT_EQ(verdict({0, 176}, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 121, 122}, 6), ErrorCode::kCorrupt);  // stride 2: byte 1 ends in three pads
  EXPECT_EQ(verdict({0, 122, 121}, 6), ErrorCode::kCorrupt);
}

TEST(ThreelcRefusals, ZeroRuns) {
  EXPECT_EQ(verdict({1, 243}, 10), kAccepted);
  EXPECT_EQ(verdict({1, 255, 121}, 75), kAccepted);
  EXPECT_EQ(verdict({1, 255, 255}, 140), kAccepted);
  EXPECT_EQ(verdict({1, 121, 121}, 10), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 121, 243}, 15), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 243, 121}, 15), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 254, 243}, 75), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 121, 255}, 75), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 244}, 10), ErrorCode::kCorrupt);  // past the end
  EXPECT_EQ(verdict({1, 243}, 15), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({1, 243, 202}, 10), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1}, 5), ErrorCode::kTruncated);
}

TEST(ThreelcRefusals, RiceCountsNoMorePositionsThanElements) {
  const auto more = one_chunk({2, 0, 4, 0, 0}, bits_of(1.0F));
  EXPECT_EQ(testing::decode(*codec_of("3lc"), more.view(), 3).error().message,
            "3lc chunk 0: more positions than elements");
  EXPECT_EQ(verdict({2, 0, 3, 0, 0}, 3), kAccepted);
}

// One position: gap g with parameter 0 is g ones and a zero, then the sign.
TEST(ThreelcRefusals, Rice) {
  EXPECT_EQ(verdict({2, 0, 1, 0, 0b00}, 1), kAccepted);
  EXPECT_EQ(verdict({2, 0, 0, 0}, 1), kAccepted);
  EXPECT_EQ(verdict({2, 15, 0, 0}, 1), kAccepted);
  EXPECT_EQ(verdict({2, 16, 0, 0}, 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({2, 0, 0}, 1), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({2, 0, 1, 0}, 1), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({2, 0, 2, 0, 0}, 1), ErrorCode::kCorrupt);      // 2 of 1
  EXPECT_EQ(verdict({2, 0, 1, 0, 0b001}, 1), ErrorCode::kCorrupt);  // position 1 of 1
  EXPECT_EQ(verdict({2, 0, 1, 0, 0b001}, 2), kAccepted);
  EXPECT_EQ(verdict({2, 0, 1, 0, 0b100}, 2), ErrorCode::kCorrupt);  // set pad bit
  EXPECT_EQ(verdict({2, 0, 1, 0, 0, 0}, 2), ErrorCode::kCorrupt);   // a byte more
  EXPECT_EQ(verdict({2, 0, 0, 0, 0}, 2), ErrorCode::kCorrupt);
}

TEST(ThreelcRefusals, RiceEscape) {
  // 24 ones, 16 bits of the gap, a sign.
  EXPECT_EQ(verdict({2, 0, 1, 0, 255, 255, 255, 24, 0, 0}, 100), kAccepted);
  EXPECT_EQ(verdict({2, 0, 1, 0, 255, 255, 255, 23, 0, 0}, 100), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({2, 1, 1, 0, 255, 255, 255, 48, 0, 0}, 100), kAccepted);
  EXPECT_EQ(verdict({2, 1, 1, 0, 255, 255, 255, 47, 0, 0}, 100), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({2, 0, 1, 0, 255, 255, 255, 100, 0, 0}, 100), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({2, 0, 1, 0, 255, 255, 255, 24, 0}, 100), ErrorCode::kTruncated);
}

TEST(ThreelcRefusals, ScalarM) {
  EXPECT_EQ(verdict({0, 202}, 5, 1), kAccepted);  // the smallest subnormal
  for (const std::uint32_t bits : {0x80000000U, 0x7F800000U, 0x7FC00000U, 0xBF800000U, 0xFF800000U}) {
    EXPECT_EQ(verdict({0, 121}, 5, bits), ErrorCode::kCorrupt) << bits;
  }
}

TEST(ThreelcRefusals, DigitsWithoutM) {
  EXPECT_EQ(verdict({0, 121}, 5, 0), kAccepted);
  EXPECT_EQ(verdict({1, 243}, 10, 0), kAccepted);
  EXPECT_EQ(verdict({2, 0, 0, 0}, 10, 0), kAccepted);
  EXPECT_EQ(verdict({0, 202}, 5, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 122, 121}, 10, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({2, 0, 1, 0, 0}, 10, 0), ErrorCode::kCorrupt);
}

TEST(ThreelcRefusals, ChunkIndex) {
  testing::Encoded part = one_chunk({0, 121, 0, 121}, 0);
  EXPECT_EQ(verdict(part, 5), ErrorCode::kCorrupt);
  part.chunk_ends = {2, 4};
  EXPECT_EQ(verdict(part, 5), ErrorCode::kCorrupt);  // one chunk too many
  part.chunk_ends = {};
  EXPECT_EQ(verdict(part, 5), ErrorCode::kCorrupt);
  part.chunk_ends = {5};
  EXPECT_EQ(verdict(part, 5), ErrorCode::kTruncated);
  testing::Encoded two = one_chunk({2, 0, 0, 0, 0, 121}, 0);
  two.chunk_ends = {4, 6};
  EXPECT_EQ(verdict(two, 40965), kAccepted);
  for (const std::vector<std::uint32_t>& ends : {std::vector<std::uint32_t>{6, 6}, {0, 6}, {6, 4}, {7, 6}}) {
    two.chunk_ends = ends;
    EXPECT_EQ(verdict(two, 40965), ErrorCode::kCorrupt);
  }
}

TEST(ThreelcRefusals, EmptyPart) {
  EXPECT_EQ(verdict(testing::Encoded{}, 0), kAccepted);
  EXPECT_EQ(verdict(testing::Encoded{{}, {}, 1}, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(testing::Encoded{{std::byte{0}}, {}, 0}, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(one_chunk({0, 121}, 0), 0), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deltawire::threelc_refusals_test
