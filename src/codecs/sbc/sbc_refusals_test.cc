// Every form that an sbc decoder must refuse, in both ways of decoding and in describe.
#include <gtest/gtest.h>

#include "base/bits.h"
#include "base/random.h"
#include "codecs/codec_testing.h"

namespace deltawire::sbc_refusals_test {
namespace {

using namespace testing;

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
  EXPECT_EQ(verdict(testing::Encoded{}, 0), kAccepted);
  EXPECT_EQ(verdict(testing::Encoded{}, 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(testing::Encoded{{}, {}, 1}, 0), ErrorCode::kCorrupt);
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

// A full chunk, then others.
TEST(SbcRefusals, ChunksInOrder) {
  const auto full = *testing::encode(*codec_of("sbc:p=0.9"), std::vector<float>(16384 * 10 / 9, 1.0F));
  ASSERT_EQ(full.chunk_ends.size(), 1U);
  ASSERT_EQ(full.payload[2], std::byte{64});
  const auto with = [&](const Ints& second, const Ints& third = {}) {
    testing::Encoded part = full;
    for (const Ints& chunk : {second, third}) {
      for (const int byte : chunk) part.payload.push_back(static_cast<std::byte>(byte));
      if (!chunk.empty()) part.chunk_ends.push_back(static_cast<std::uint32_t>(part.payload.size()));
    }
    return verdict(part, 20000);
  };
  EXPECT_EQ(with({}), kAccepted);
  EXPECT_EQ(with({0, 1, 0, 0, 64, 0, 0}), kAccepted);              // position 16,384
  EXPECT_EQ(with({0, 1, 0, 255, 63, 0, 0}), ErrorCode::kCorrupt);  // 16,383 again
  EXPECT_EQ(with({0, 1, 0, 0, 0, 0, 0}), ErrorCode::kCorrupt);     // 0 again
  EXPECT_EQ(with({0, 1, 0, 32, 78, 0, 0}), ErrorCode::kCorrupt);   // 20,000 of 20,000
  EXPECT_EQ(with({0, 0, 0}), ErrorCode::kCorrupt);                 // empty, but not the first
  EXPECT_EQ(with({0, 1, 0, 0, 64, 0, 0}, {0, 1, 0, 1, 64, 0, 0}), ErrorCode::kCorrupt);  // a short one inside
}

// Encodings of random positions with something broken: an answer, and never a byte outside.
// One position too few in a chunk that isn't the last.
TEST(SbcRefusals, AChunkBeforeOthersIsFull) {
  const auto codec = codec_of("sbc:p=0.99999");
  const auto whole = *testing::encode(*codec, std::vector<float>(16386, 1.0F));
  const auto shorter = *testing::encode(*codec, std::vector<float>(16383, 1.0F));
  testing::Encoded mixed = shorter;
  mixed.payload.insert(mixed.payload.end(), whole.payload.begin() + whole.chunk_ends[0], whole.payload.end());
  mixed.chunk_ends.push_back(static_cast<std::uint32_t>(mixed.payload.size()));
  EXPECT_EQ(verdict(whole, 16386), kAccepted);
  EXPECT_EQ(verdict(mixed, 16386), ErrorCode::kCorrupt);
}

TEST(SbcRefusals, BrokenEncodings) {
  const auto codec = codec_of("sbc:p=0.3");
  CounterRng random(5);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::uint64_t count = 1 + random.next() % 6000;
    auto part =
        *testing::encode(*codec, testing::normal_values(count, static_cast<std::uint64_t>(round % 50)));
    const int changes = 1 + static_cast<int>(random.next() % 3);
    for (int i = 0; i < changes; ++i) {
      const std::uint64_t within =
          i == 0 ? std::min<std::uint64_t>(part.payload.size(), 40) : part.payload.size();
      part.payload[random.next() % within] = static_cast<std::byte>(random.next() & 0xFF);
    }
    refused += verdict(part, count) == kAccepted ? 0 : 1;
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace deltawire::sbc_refusals_test
