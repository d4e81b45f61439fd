// Every form that a gcomp decoder must refuse, in both ways of decoding and in describe.
#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/gcomp/gcomp_testing.h"

namespace deltawire {
namespace {

using testing::codec_of;
using testing::kAccepted;
using testing::one_chunk;
using Ints = std::vector<int>;

ErrorCode verdict(const testing::Encoded& part, std::uint64_t count) {
  return testing::verdict_of("gcomp", part, count);
}

ErrorCode verdict(const Ints& bytes, std::uint64_t count) {
  return verdict(one_chunk(bytes, 0), count);
}

// `bytes` after one another.
Ints joined(std::initializer_list<Ints> pieces) {
  Ints all;
  for (const Ints& piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
  return all;
}

// Of exponent 127 and zeros, one bit each: zero is 0, exponent 127 is 1.
const Ints kTable = {0x10, 1, 127, 1};
// Coded block of one element 1.0: no words, the lane holds the code above the 16 zeros it began with.
const Ints kOne = {2, 0, 0, 1, 0, 2, 0, 0, 0, 0};
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
  for (const int head : {0x04, 0x05, 0x10, 0x11, 0x40, 0x80, 0x41}) {
    EXPECT_EQ(verdict({head, 1, 2, 3, 4}, 1), ErrorCode::kCorrupt) << head;
  }
  for (const int head : {0x42, 0x82, 0xC2, 0x07, 0x13}) {
    EXPECT_EQ(verdict(joined({{head}, kTable, kOne}), 1), ErrorCode::kCorrupt) << head;
  }
  EXPECT_EQ(verdict({2}, 1), ErrorCode::kTruncated);
}

TEST(GcompRefusals, OwnTable) {
  const auto table = [](const Ints& bytes) { return verdict(joined({{2}, bytes, {1}}), 1); };
  EXPECT_EQ(table({0x10, 1, 127, 1}), kAccepted);
  EXPECT_EQ(table({0x11, 0}), kAccepted);                             // escape and zero, no exponents
  EXPECT_EQ(table({0x10, 1, 255, 1}), kAccepted);                     // NaN and Inf
  EXPECT_EQ(table({0x10, 1, 0, 1}), ErrorCode::kCorrupt);             // exponent 0 isn't in a window
  EXPECT_EQ(table({0x00, 2, 254, 0x11}), kAccepted);                  // 254 and 255
  EXPECT_EQ(table({0x00, 2, 255, 0x11}), ErrorCode::kCorrupt);        // 256
  EXPECT_EQ(table({0x10, 1, 127, 0x11}), ErrorCode::kCorrupt);        // set padding
  EXPECT_EQ(table({0x10, 2, 127, 0x01}), ErrorCode::kCorrupt);        // an unused end
  EXPECT_EQ(table({0x10, 2, 127, 0x10}), ErrorCode::kCorrupt);        // an unused beginning
  EXPECT_EQ(table({0x10, 3, 127, 0x02, 0x02}), kAccepted);            // a gap inside is fine
  EXPECT_EQ(table({0x10, 1, 127, 2}), ErrorCode::kCorrupt);           // 3/4 of a code
  EXPECT_EQ(table({0x11, 1, 127, 1}), ErrorCode::kCorrupt);           // 3/2
  EXPECT_EQ(table({0x10, 0}), ErrorCode::kCorrupt);                   // a single symbol
  EXPECT_EQ(table({0x00, 0}), ErrorCode::kCorrupt);                   // none
  EXPECT_EQ(table({0x19, 1, 127, 1}), ErrorCode::kCorrupt);           // 9 bits
  EXPECT_EQ(table({0x10, 3, 127, 0x12, 0x0F}), ErrorCode::kCorrupt);  // 15 bits
  for (std::size_t bytes = 0; bytes < 4; ++bytes) {
    const Ints cut(kTable.begin(), kTable.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_EQ(verdict(joined({{2}, cut}), 1), ErrorCode::kTruncated) << bytes;
  }
}

// Exponent 0 has no place in a window: zero's length stands before them all.
TEST(GcompRefusals, AWindowBeginsAtExponentOne) {
  EXPECT_EQ(verdict(joined({{2}, {0x11, 1, 0, 1}, {1}}), 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(joined({{2}, {0x22, 1, 1, 1}, {1}}), 1), kAccepted);
}

TEST(GcompRefusals, MixedTable) {
  const auto table = [](const Ints& bytes) { return verdict(joined({{3}, bytes, {1}}), 1); };
  EXPECT_EQ(table({0, 0, 0x11, 0, 0, 0, 0}), kAccepted);
  EXPECT_EQ(table({0x11, 0, 0, 0, 0, 0, 0}), kAccepted);
  EXPECT_EQ(table({0, 0, 1, 1, 255, 1, 0, 0, 0}), kAccepted);
  EXPECT_EQ(table({0, 0, 1, 0, 1, 254, 1, 0, 0}), kAccepted);
  EXPECT_EQ(table({0, 0, 1, 0, 1, 255, 1, 0, 0}), ErrorCode::kCorrupt);  // a cut NaN
  EXPECT_EQ(table({0, 0, 1, 0, 0, 0, 1, 254, 1}), kAccepted);
  EXPECT_EQ(table({0, 0, 1, 0, 0, 0, 2, 254, 0x11}), ErrorCode::kCorrupt);
  EXPECT_EQ(table({0, 0, 0x11, 1, 127, 1, 0, 0, 0}), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({3, 0, 0, 0x11, 0, 0, 0}, 1), ErrorCode::kTruncated);
}

TEST(GcompRefusals, StaticTable) {
  for (const int id : {1, 2, 3}) {
    const auto base = [id](int exponent) { return verdict({2 | id << 4, exponent, 1}, 1); };
    EXPECT_EQ(base(12), kAccepted);
    EXPECT_EQ(base(254), kAccepted);
    EXPECT_EQ(base(11), ErrorCode::kCorrupt);
    EXPECT_EQ(base(255), ErrorCode::kCorrupt);
    EXPECT_EQ(base(0), ErrorCode::kCorrupt);
    EXPECT_EQ(verdict({2 | id << 4}, 1), ErrorCode::kTruncated);
  }
}

TEST(GcompRefusals, Block) {
  const auto block = [](const Ints& bytes) { return verdict(joined({{2}, kTable, bytes}), 1); };
  EXPECT_EQ(block({}), ErrorCode::kTruncated);
  EXPECT_EQ(block({3}), ErrorCode::kCorrupt);
  EXPECT_EQ(block({1, 0}), ErrorCode::kCorrupt);
  EXPECT_EQ(block({0, 1, 2, 3}), ErrorCode::kTruncated);
  EXPECT_EQ(block({0, 1, 2, 3, 4, 5}), ErrorCode::kCorrupt);
  for (std::size_t bytes = 1; bytes < kOne.size(); ++bytes) {
    EXPECT_EQ(block(Ints(kOne.begin(), kOne.begin() + static_cast<std::ptrdiff_t>(bytes))),
              ErrorCode::kTruncated)
        << bytes;
  }
  EXPECT_EQ(block({2, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0}), ErrorCode::kCorrupt);     // a byte more
  EXPECT_EQ(block({2, 1, 0, 1, 0, 2, 0, 9, 9, 0, 0, 0}), ErrorCode::kCorrupt);  // a word that nobody reads
  EXPECT_EQ(block({2, 9, 0, 1, 0, 2, 0, 0, 0, 0}), ErrorCode::kTruncated);      // words beyond the block
  EXPECT_EQ(block({2, 0, 0, 1, 0, 0, 0, 0, 0, 0}), ErrorCode::kCorrupt);        // a lane of 0 bits
  EXPECT_EQ(block({2, 0, 0, 0, 0, 0, 0}), ErrorCode::kCorrupt);                 // no end bit at all
  EXPECT_EQ(block({2, 0, 0, 3, 0, 2, 0, 0, 0, 0}), ErrorCode::kCorrupt);        // bits left in the lane
  EXPECT_EQ(block({2, 0, 0, 1, 0, 4, 0, 0, 0, 0}), ErrorCode::kCorrupt);        // 17 left
  EXPECT_EQ(block({2, 0, 0, 1, 0, 1, 0, 0, 0, 0}), ErrorCode::kTruncated);      // 15 left: a word is missing
}

TEST(GcompRefusals, MantissaPadding) {
  // cut=18: one element has 6 bits.
  EXPECT_EQ(verdict(joined({{2 | 3 << 2}, kTable, {2, 0, 0, 1, 0, 2, 0, 0x3F}}), 1), kAccepted);
  EXPECT_EQ(verdict(joined({{2 | 3 << 2}, kTable, {2, 0, 0, 1, 0, 2, 0, 0x40}}), 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(joined({{2 | 3 << 2}, kTable, {2, 0, 0, 1, 0, 2, 0, 0x80}}), 1), ErrorCode::kCorrupt);
}

// A block of one element whose code is `code` (with what follows an escape), `bits` long.
Ints block_of(unsigned code, unsigned bits, const Ints& mantissa) {
  const unsigned state = 1U << (16 + bits) | code;
  Ints block = {2, 0, 0};
  for (unsigned shift = 0; shift < 32; shift += 8) block.push_back(static_cast<int>(state >> shift & 0xFF));
  block.insert(block.end(), mantissa.begin(), mantissa.end());
  return block;
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
  // Exponent 127 and the escape, one bit each: 0 and 1.
  const Ints table = {1, 1, 127, 1};
  const auto escaped = [&](unsigned exponent, const Ints& mantissa, int head = 2) {
    return verdict(joined({{head}, table, block_of(1 | exponent << 1, 9, mantissa)}), 1);
  };
  EXPECT_EQ(escaped(126, {1, 2, 3}), kAccepted);
  EXPECT_EQ(escaped(127, {1, 2, 3}), ErrorCode::kCorrupt);  // has a code
  EXPECT_EQ(escaped(0, {}), kAccepted);                     // +0
  EXPECT_EQ(escaped(0, {1, 2, 3}), ErrorCode::kCorrupt);
  EXPECT_EQ(escaped(255, {1, 2, 3}, 2 | 3 << 2), kAccepted);  // never cut
  EXPECT_EQ(escaped(254, {1}, 2 | 3 << 2), kAccepted);
  EXPECT_EQ(escaped(255, {1}, 2 | 3 << 2), ErrorCode::kTruncated);
  // A zero that has a code.
  EXPECT_EQ(verdict(joined({{2}, {0x11, 0}, block_of(1, 9, {})}), 1), ErrorCode::kCorrupt);
}

TEST(GcompRefusals, EscapesOfMixedChunks) {
  // All four escapes, two bits each. The first bit of a code is the lowest: 0, 2, 1, 3.
  const auto escaped = [](unsigned level, unsigned exponent, const Ints& mantissa) {
    const unsigned codes[] = {0, 2, 1, 3};
    return verdict(
        joined({{3, 0x22, 0x22, 0, 0, 0, 0, 0}, block_of(codes[level] | exponent << 2, 10, mantissa)}), 1);
  };
  for (const unsigned level : {0U, 1U, 2U, 3U}) {
    Ints mantissa = {9, 9, 9};
    mantissa.resize((24 - level * 6 + 7) / 8, 0);
    mantissa.back() = 1;
    EXPECT_EQ(escaped(level, 127, mantissa), kAccepted) << level;
    EXPECT_EQ(escaped(level, 254, mantissa), kAccepted) << level;
    EXPECT_EQ(escaped(level, 255, mantissa), level == 0 ? kAccepted : ErrorCode::kCorrupt) << level;
  }
  EXPECT_EQ(escaped(0, 0, {}), kAccepted);                   // +0
  EXPECT_EQ(escaped(1, 0, {1, 0, 0}), kAccepted);            // a subnormal
  EXPECT_EQ(escaped(1, 0, {0, 0, 0x80}), kAccepted);         // -0
  EXPECT_EQ(escaped(1, 0, {0, 0, 0}), ErrorCode::kCorrupt);  // +0 has its own symbol
  EXPECT_EQ(escaped(2, 0, {1, 0}), ErrorCode::kCorrupt);
  EXPECT_EQ(escaped(3, 0, {1}), ErrorCode::kCorrupt);
}

TEST(GcompRefusals, BlockIndex) {
  const std::uint64_t count = 2 * 16384 + 1;
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
  EXPECT_EQ(verdict(testing::Encoded{}, 0), kAccepted);
  EXPECT_EQ(verdict(testing::Encoded{{}, {}, 1}, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(one_chunk({1}, 0), 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(one_chunk({1}, 0), 262145), ErrorCode::kCorrupt);
}

TEST(GcompRefusals, FlippedBitsAndCutsOfLargeParts) {
  // Several lanes and blocks, every mode of both: any answer will do, but none may write outside.
  CounterRng random(21);
  std::vector<float> values = testing::normal_values(40000, 1);
  std::vector<float> significance = testing::normal_values(40000, 2);
  for (float& number : significance) number *= 3000;
  for (std::size_t i = 16384; i < 32768; ++i) values[i] = 0;
  const auto codec = codec_of("gcomp");
  for (const auto& weights : {std::vector<float>{}, significance}) {
    const auto part = testing::encode_significant(*codec, values, weights);
    for (int round = 0; round < 400; ++round) {
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
}  // namespace deltawire
