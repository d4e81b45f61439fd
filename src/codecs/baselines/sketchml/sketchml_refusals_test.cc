// Bytes that sketchml must refuse: each rule of spec.md once.
#include <algorithm>
#include <bit>

#include <gtest/gtest.h>

#include "codecs/baselines/sketchml/sketchml_testing.h"
#include "codecs/codec_testing.h"

namespace deltawire::sketchml_refusals_test {
namespace {

using namespace testing;

constexpr std::string_view kSpec = "sketchml:q=4,r=2,rows=1,cols=1";

ErrorCode verdict(Ints bytes, std::uint64_t count = 1000, std::string_view spec = kSpec) {
  return testing::verdict_of(spec, one_chunk(std::move(bytes), 0), count);
}

// The example of spec.md: means at 12, the first group at 24 (flags 28, gaps 29 and 30, cells 31), the second
// at 32 (flags 36, gap 37).
const Ints kGood = {3,    0, 0, 0,    0,    0, 0, 0, 2, 0, 1, 0, 0, 0, 0xC0, 0x3F, 0, 0, 0,
                    0x40, 0, 0, 0x40, 0x40, 2, 0, 0, 0, 0, 0, 4, 1, 1, 0,    0,    0, 0, 3};

Ints with(Ints bytes, std::size_t at, Ints values) {
  std::copy(values.begin(), values.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
  return bytes;
}

Ints float_bytes(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {static_cast<int>(bits & 255), static_cast<int>(bits >> 8 & 255), static_cast<int>(bits >> 16 & 255),
          static_cast<int>(bits >> 24)};
}

// Three buckets in one group, of the sign that the head has at this byte.
Ints three(int cells, std::size_t sign_at) {
  Ints bytes = {3, 0, 0,    0, 0, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0x80, 0x3F, 0,
                0, 0, 0x40, 0, 0, 0x40, 0x40, 3, 0, 0, 0, 0, 0, 0, 0,    cells};
  bytes[sign_at] = 3;
  return bytes;
}

TEST(SketchmlRefusals, TheExampleIsAccepted) {
  EXPECT_EQ(verdict(kGood), kAccepted);
  EXPECT_EQ(verdict(kGood, 6), kAccepted) << "the last key is 5";
  const auto back = *testing::decode(*codec_of(kSpec), one_chunk(kGood, 0).view(), 6);
  EXPECT_EQ(back, (std::vector<float>{1.5F, 0, 0, -3, 0, 1.5F}));
}

TEST(SketchmlRefusals, Lengths) {
  for (std::size_t bytes = 1; bytes < kGood.size(); ++bytes) {
    EXPECT_EQ(verdict(Ints(kGood.begin(), kGood.begin() + static_cast<std::ptrdiff_t>(bytes))),
              ErrorCode::kTruncated)
        << bytes;
  }
  Ints longer = kGood;
  longer.push_back(0);
  EXPECT_EQ(verdict(longer), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 0, 0, 0}), kAccepted);
  EXPECT_EQ(verdict({0, 0, 0, 0, 0}), ErrorCode::kCorrupt);
}

TEST(SketchmlRefusals, PairCounts) {
  EXPECT_EQ(verdict(with(kGood, 0, {1, 0, 1, 0}), 100000), ErrorCode::kCorrupt) << "65,537 pairs";
  const auto too_many =
      testing::decode(*codec_of(kSpec), one_chunk(with(kGood, 0, {1, 0, 1, 0}), 0).view(), 100000);
  EXPECT_NE(too_many.error().message.find("a number of pairs that this chunk can't have"), std::string::npos)
      << too_many.error().message;
  EXPECT_EQ(verdict(with(kGood, 0, {4})), ErrorCode::kCorrupt) << "more than the groups have";
  EXPECT_EQ(verdict(kGood, 2), ErrorCode::kCorrupt) << "more than elements";
  EXPECT_EQ(verdict(with(kGood, 0, {255, 255, 255, 255})), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(with(kGood, 24, {0})), ErrorCode::kCorrupt) << "a group of none";
  EXPECT_EQ(verdict(with(kGood, 24, {255, 255, 255, 255})), ErrorCode::kCorrupt) << "and of all";
}

// More keys than a table can have: what a decoder keeps of its cells has room for those of a chunk.
TEST(SketchmlRefusals, AGroupLargerThanAChunk) {
  constexpr std::size_t kKeys = 70000;
  Ints bytes = {0,           0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x80, 0x3F, kKeys & 255, kKeys >> 8 & 255,
                kKeys >> 16, 0};
  bytes.resize(bytes.size() + kKeys / 4 + kKeys, 0);
  EXPECT_EQ(verdict(bytes, 100000, "sketchml:rows=4,cols=1"), ErrorCode::kCorrupt);
}

TEST(SketchmlRefusals, Buckets) {
  EXPECT_EQ(verdict(with(kGood, 8, {3})), ErrorCode::kCorrupt) << "more than q / 2";
  EXPECT_EQ(verdict(with(kGood, 10, {3})), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(with(kGood, 10, {0, 1})), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}), ErrorCode::kCorrupt) << "none";
  for (const std::size_t sign_at : {8U, 10U}) {
    EXPECT_EQ(verdict(three(2, sign_at), 1000, "sketchml:q=8,r=2,rows=1,cols=0.05"), kAccepted);
    EXPECT_EQ(verdict(three(2, sign_at), 1000, "sketchml:q=4,r=2,rows=1,cols=0.05"), ErrorCode::kCorrupt);
  }
  EXPECT_EQ(
      verdict({1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0xC0, 0x3F, 0, 0, 0, 0x40, 1, 0, 0, 0, 0, 0, 1}),
      ErrorCode::kCorrupt)
      << "two of one key";
  // Two keys can't have two buckets above 0 and one below.
  EXPECT_EQ(verdict(with(kGood, 0, {2})), ErrorCode::kCorrupt);
}

TEST(SketchmlRefusals, Means) {
  EXPECT_EQ(verdict(with(kGood, 12, float_bytes(2))), kAccepted) << "means may be equal";
  EXPECT_EQ(verdict(with(kGood, 12, {1, 0, 0, 0})), kAccepted) << "the smallest";
  EXPECT_EQ(verdict(with(kGood, 16, {255, 255, 0x7F, 0x7F})), kAccepted) << "the largest";
  EXPECT_EQ(verdict(with(kGood, 12, float_bytes(2.5F))), ErrorCode::kCorrupt) << "out of order";
  EXPECT_EQ(verdict(with(kGood, 12, float_bytes(0))), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(with(kGood, 12, float_bytes(-1))), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(with(kGood, 16, {0, 0, 0x80, 0x7F})), ErrorCode::kCorrupt) << "infinity";
  EXPECT_EQ(verdict(with(kGood, 20, {0, 0, 0xC0, 0x7F})), ErrorCode::kCorrupt) << "NaN";
  EXPECT_EQ(verdict(with(kGood, 20, float_bytes(-3))), ErrorCode::kCorrupt);
}

TEST(SketchmlRefusals, Keys) {
  EXPECT_EQ(verdict(kGood, 5), ErrorCode::kCorrupt) << "key 5 is outside";
  EXPECT_EQ(verdict(with(kGood, 37, {5})), ErrorCode::kCorrupt) << "key 5 twice";
  EXPECT_EQ(verdict(with(kGood, 37, {0})), ErrorCode::kCorrupt) << "key 0 twice";
  EXPECT_EQ(verdict(with(kGood, 29, {1})), ErrorCode::kCorrupt) << "the first key isn't there";
  EXPECT_EQ(verdict(with(kGood, 4, {226, 3})), kAccepted) << "keys 994 to 999, with cells that they can have";
  EXPECT_EQ(verdict(with(kGood, 4, {227, 3})), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(with(kGood, 4, {255, 255, 255, 255})), ErrorCode::kCorrupt) << "keys must not wrap";
}

// One key; gaps of every length, and each in one byte more than it needs.
TEST(SketchmlRefusals, Gaps) {
  const auto chunk = [](int flag, const Ints& gap) {
    Ints bytes = {2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x80, 0x3F, 2, 0, 0, 0, flag << 2, 0};
    bytes.insert(bytes.end(), gap.begin(), gap.end());
    return bytes;
  };
  constexpr std::uint64_t kAll = 0xFFFFFFFF;
  const auto status = [&](const Ints& bytes) {
    std::vector<Section> sections;
    const auto described = codec_of(kSpec)->describe(one_chunk(bytes, 0).view(), kAll, sections);
    return described ? kAccepted : described.error().code;
  };
  EXPECT_EQ(status(chunk(0, {255})), kAccepted);
  EXPECT_EQ(status(chunk(1, {0, 1})), kAccepted);
  EXPECT_EQ(status(chunk(1, {255, 0})), ErrorCode::kCorrupt);
  EXPECT_EQ(status(chunk(2, {0, 0, 1})), kAccepted);
  EXPECT_EQ(status(chunk(2, {255, 255, 0})), ErrorCode::kCorrupt);
  EXPECT_EQ(status(chunk(3, {0, 0, 0, 1})), kAccepted);
  EXPECT_EQ(status(chunk(3, {255, 255, 255, 0})), ErrorCode::kCorrupt);
  EXPECT_EQ(status(chunk(3, {0xFD, 255, 255, 255})), kAccepted) << "key 2^32 - 2";
  EXPECT_EQ(status(chunk(3, {0xFE, 255, 255, 255})), ErrorCode::kCorrupt) << "key 2^32 - 1 is outside";
  EXPECT_EQ(status(chunk(3, {255, 255, 255, 255})), ErrorCode::kCorrupt);
}

TEST(SketchmlRefusals, Tables) {
  EXPECT_EQ(verdict(with(kGood, 31, {3})), kAccepted) << "bucket 1 for both: a value";
  EXPECT_EQ(verdict(with(kGood, 31, {0})), ErrorCode::kCorrupt) << "no key has the first cell: it must be 1";
  EXPECT_EQ(verdict(with(kGood, 31, {1 | 4})), ErrorCode::kCorrupt) << "a set pad";
  EXPECT_EQ(verdict(with(kGood, 28, {16})), ErrorCode::kCorrupt) << "a set pad behind the flags";
  // Numbers of two bits, of which 3 is none.
  const auto columns = testing::sketchml_column(0, 0, 0, 1);
  ASSERT_EQ(columns, 0U);
  EXPECT_EQ(verdict(three(2, 8), 1000, "sketchml:q=8,r=2,rows=1,cols=0.05"), kAccepted);
  EXPECT_EQ(verdict(three(3, 8), 1000, "sketchml:q=8,r=2,rows=1,cols=0.05"), ErrorCode::kCorrupt);
}

TEST(SketchmlRefusals, ChunksGoUpInKeys) {
  const auto codec = codec_of(kSpec);
  Encoded part = *testing::encode(*codec, std::vector<float>(65537, 1.0F));
  ASSERT_EQ(part.chunk_ends.size(), 2U);
  ASSERT_EQ(testing::verdict_of(kSpec, part, 65537), kAccepted);
  Encoded repeated = part;
  repeated.payload[part.chunk_ends[0] + 4] = std::byte{255};  // key 65536 becomes 65535
  repeated.payload[part.chunk_ends[0] + 5] = std::byte{255};
  repeated.payload[part.chunk_ends[0] + 6] = std::byte{0};
  EXPECT_EQ(testing::verdict_of(kSpec, repeated, 65537), ErrorCode::kCorrupt);
  Encoded empty = *testing::encode(*codec, std::vector<float>(65536, 1.0F));
  empty.payload.resize(empty.payload.size() + 4, std::byte{0});
  empty.chunk_ends.push_back(static_cast<std::uint32_t>(empty.payload.size()));
  EXPECT_EQ(testing::verdict_of(kSpec, empty, 65537), ErrorCode::kCorrupt) << "an empty chunk beside another";
  Ints two = kGood;
  two.insert(two.end(), kGood.begin(), kGood.end());
  two[kGood.size() + 4] = 9;
  Encoded shorter = one_chunk(two, 0);
  shorter.chunk_ends = {static_cast<std::uint32_t>(kGood.size()), static_cast<std::uint32_t>(two.size())};
  EXPECT_EQ(testing::verdict_of(kSpec, shorter, 1000), ErrorCode::kCorrupt)
      << "a short chunk before the last";
}

TEST(SketchmlRefusals, EmptyParts) {
  EXPECT_EQ(testing::verdict_of(kSpec, Encoded{}, 0), kAccepted);
  EXPECT_EQ(testing::verdict_of(kSpec, Encoded{{}, {}, 1}, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(testing::verdict_of(kSpec, Encoded{}, 5), ErrorCode::kCorrupt);
  std::vector<Section> sections;
  const Encoded none = one_chunk({0, 0, 0, 0}, 0);
  EXPECT_TRUE(codec_of(kSpec)->describe(none.view(), 0xFFFFFFFF, sections));
  EXPECT_FALSE(codec_of(kSpec)->describe(none.view(), std::uint64_t{1} << 32, sections));
}

}  // namespace
}  // namespace deltawire::sketchml_refusals_test
