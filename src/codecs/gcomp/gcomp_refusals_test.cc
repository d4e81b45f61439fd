// Every form that a gcomp decoder must refuse, in both ways of decoding and in describe.
#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/gcomp/gcomp_testing.h"

namespace deltawire::gcomp_refusals_test {
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

// Of exponent 127 and zeros, one bit each: zero is 0, exponent 127 is 1. In whole chunks, and in cut ones.
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

TEST(GcompRefusals, OwnTable) {
  const auto table = [](const Ints& bytes) { return verdict(joined({{2}, bytes, {1}}), 1); };
  EXPECT_EQ(table({0x10, 0, 1, 1, 127, 1}), kAccepted);
  EXPECT_EQ(table({0x11, 0, 0}), kAccepted);                                // escape and zero, no exponents
  EXPECT_EQ(table({0x10, 1, 0}), kAccepted);                                // zero and tiny
  EXPECT_EQ(table({0x10, 0x11, 0}), ErrorCode::kCorrupt);                   // something beside tiny
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
  EXPECT_EQ(coded({9, 0, 0, 0}, {1, 0, 2, 0}), ErrorCode::kCorrupt);     // a byte that nobody reads
  EXPECT_EQ(coded({9, 9, 0, 0, 0}, {1, 0, 2, 0}), ErrorCode::kCorrupt);  // a word that nobody reads
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
  EXPECT_EQ(escaped({0, 0, 0, 0}), ErrorCode::kCorrupt);   // +0 has a symbol of its own
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
  EXPECT_EQ(verdict(testing::Encoded{}, 0), kAccepted);
  EXPECT_EQ(verdict(testing::Encoded{{}, {}, 1}, 0), ErrorCode::kCorrupt);
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
}  // namespace deltawire::gcomp_refusals_test
