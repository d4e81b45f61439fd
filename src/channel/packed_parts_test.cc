// docs/reference/format.md, section 10: raw parts that follow each other share one segment.
#include <bit>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "channel/channel_testing.h"
#include "channel/message_encoder.h"
#include "channel/message_testing.h"
#include "deltawire/channel.h"
#include "deltawire/frame.h"

namespace deltawire::packed_parts_test {
namespace {

using namespace testing;

constexpr std::uint8_t kTwo = 2;

// Raw parts of float32 and of bfloat16, one without elements among them, and two that are coded.
struct Mixed {
  std::vector<Named> named() {
    return {{"a", {a.data(), a.size(), DType::kF32}, 0},  {"none", {nullptr, 0, DType::kF32}, 0},
            {"b", {b.data(), b.size(), DType::kF32}, 0},  {"c", {c.data(), c.size(), DType::kBF16}, 0},
            {"d", {d.data(), d.size(), DType::kBF16}, 0}, {"e", {e.data(), e.size(), DType::kF32}, 0},
            {"h", {h.data(), h.size(), DType::kBF16}, 0}, {"f", {f.data(), f.size(), DType::kBF16}, 0},
            {"w", {w.data(), w.size(), DType::kF32}, 0}};
  }

  std::vector<float> a = std::vector<float>(3), b = std::vector<float>(2), e = std::vector<float>(1);
  std::vector<std::uint16_t> c = std::vector<std::uint16_t>(4), d = std::vector<std::uint16_t>(5);
  std::vector<std::uint16_t> h = std::vector<std::uint16_t>(2), f = std::vector<std::uint16_t>(30);
  std::vector<float> w = std::vector<float>(20);
};

constexpr Piece run(std::uint32_t part, std::uint32_t parts, std::uint32_t count, std::uint16_t codec) {
  return {.part = part, .codec = codec, .count = count, .parts = parts};
}

constexpr Piece kFloats = run(0, 2, 5, kFp32);
constexpr Piece kHalves = run(3, 2, 9, kBf16);
constexpr Piece kOne = run(5, 1, 1, kFp32);
constexpr Piece kTwoHalves = run(6, 1, 2, kBf16);
constexpr Piece kLongHalves{7, kBf16, 0, 30};
constexpr Piece kCoded{8, kInt8, 0, 20};

struct Rule {
  std::string name;
  std::vector<Piece> pieces;
  std::optional<ErrorCode> error;
  std::uint8_t version = kTwo;
};

// Each part alone; the third by a codec.
std::vector<Piece> singly(std::uint16_t third) {
  return {run(0, 1, 3, kFp32),
          run(2, 1, 2, kFp32),
          run(3, 1, 4, third),
          run(4, 1, 5, kFp32),
          kOne,
          run(6, 1, 2, kFp32),
          {7, kInt8, 0, 30},
          kCoded};
}

std::vector<Rule> good_messages() {
  return {
      {"two runs", {kFloats, kHalves, kOne, kTwoHalves, kLongHalves, kCoded}, std::nullopt},
      {"a frame for each",
       {kFloats, in_new_frame(kHalves), kOne, kTwoHalves, in_new_frame(kLongHalves), kCoded},
       std::nullopt},
      {"one run, all as float32", {run(0, 6, 17, kFp32), {7, kInt8, 0, 30}, kCoded}, std::nullopt},
      {"a run and single parts",
       {kFloats, run(3, 1, 4, kBf16), run(4, 1, 5, kFp32), kOne, kTwoHalves, kLongHalves, kCoded},
       std::nullopt},
      {"as in version 1", singly(kFp32), std::nullopt, 1},
      {"16 bits in version 1", singly(kBf16), ErrorCode::kCorrupt, 1},
  };
}

std::vector<Rule> wrong_codecs() {
  return {
      {"float32 tensors as bf16",
       {run(0, 2, 5, kBf16), kHalves, kOne, kTwoHalves, kLongHalves, kCoded},
       ErrorCode::kCorrupt},
      {"one float32 tensor as bf16",
       {kFloats, kHalves, kOne, kTwoHalves, kLongHalves, {8, kBf16, 0, 20}},
       ErrorCode::kCorrupt},
      {"bfloat16 tensors as fp16",
       {kFloats, run(3, 2, 9, kFp16), kOne, kTwoHalves, kLongHalves, kCoded},
       ErrorCode::kCorrupt},
      {"a run that begins in bf16",
       {kFloats, run(3, 3, 10, kBf16), kTwoHalves, kLongHalves, kCoded},
       ErrorCode::kCorrupt},
      {"a run that ends in bf16",
       {run(0, 1, 3, kFp32), run(2, 3, 11, kBf16), kOne, kTwoHalves, kLongHalves, kCoded},
       ErrorCode::kCorrupt},
      {"a run of a codec that is due to none",
       {run(0, 2, 5, kInt8), kHalves, kOne, kTwoHalves, kLongHalves, kCoded},
       ErrorCode::kCorrupt},
  };
}

std::vector<Rule> wrong_parts() {
  return {
      {"a float32 part that is not raw",
       {kFloats, kHalves, kOne, kTwoHalves, run(7, 2, 50, kFp32)},
       ErrorCode::kCorrupt},
      {"a bfloat16 part that is not raw",
       {kFloats, kHalves, kOne, run(6, 2, 32, kBf16), kCoded},
       ErrorCode::kCorrupt},
      {"parts beyond the last", {kFloats, kHalves, kOne, run(6, 4, 60, kFp32)}, ErrorCode::kCorrupt},
      {"a part more",
       {run(0, 3, 5, kFp32), kHalves, kOne, kTwoHalves, kLongHalves, kCoded},
       ErrorCode::kCorrupt},
      {"a part less",
       {kFloats, run(3, 1, 9, kBf16), kOne, kTwoHalves, kLongHalves, kCoded},
       ErrorCode::kCorrupt},
      {"an element more",
       {run(0, 2, 6, kFp32), kHalves, kOne, kTwoHalves, kLongHalves, kCoded},
       ErrorCode::kCorrupt},
      {"an element less",
       {run(0, 2, 4, kFp32), kHalves, kOne, kTwoHalves, kLongHalves, kCoded},
       ErrorCode::kCorrupt},
      {"the empty part's number",
       {run(0, 1, 3, kFp32), run(1, 2, 6, kFp32), run(4, 1, 5, kFp32), kOne, kTwoHalves, kLongHalves, kCoded},
       ErrorCode::kCorrupt},
      {"a run twice",
       {kFloats, kFloats, kHalves, kOne, kTwoHalves, kLongHalves, kCoded},
       ErrorCode::kCorrupt},
      {"no first run", {kHalves, kOne, kTwoHalves, kLongHalves, kCoded}, ErrorCode::kCorrupt},
      {"no last part", {kFloats, kHalves, kOne, kTwoHalves, kLongHalves}, ErrorCode::kTruncated},
  };
}

void expect_rules(const std::vector<Rule>& rules) {
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.name);
    Mixed mixed;
    const auto parts = mixed.named();
    const auto message = message_of(header_of(parts), rule.pieces, [](FrameHeader&) {}, rule.version);
    const auto receiver = make_channel("int8", {kPolicy, Revert::kFold});
    expect_code((*receiver)->decode(message, parts, kId, Into::kOverwrite, 1.0F), rule.error);
    std::vector<Pairs> means(parts.size());
    expect_code((*receiver)->decode_pairs(message, parts, kId, 1.0F, means), rule.error);
  }
}

TEST(PackedParts, RulesOfTheirSegments) {
  expect_rules(good_messages());
  expect_rules(wrong_codecs());
  expect_rules(wrong_parts());
}

// Each bit of it, and of the bytes before it.
TEST(PackedParts, EveryFlippedBitOfARunIsRefused) {
  Mixed mixed;
  const std::vector<Named> all = mixed.named();
  const std::span parts = std::span(all).first(3);
  const auto good = message_of(header_of(parts), {run(0, 2, 5, kFp32)});
  const auto receiver = make_channel("int8", {kPolicy, Revert::kFold});
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto message = good;
    message[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE((*receiver)->decode(message, parts, kId, Into::kOverwrite, 1.0F)) << bit;
    std::vector<Pairs> means(parts.size());
    EXPECT_FALSE((*receiver)->decode_pairs(message, parts, kId, 1.0F, means)) << bit;
  }
}

TEST(PackedParts, ABeginInTheMiddleOfAPartIsNoRun) {
  // Of a coded part a chunk is missing when the run comes.
  std::vector<float> large(70000), small(3);
  const std::vector<Named> cut{{"w", {large.data(), large.size(), DType::kF32}, 0},
                               {"a", {small.data(), small.size(), DType::kF32}, 0}};
  const auto message =
      message_of(header_of(cut), {kLargeBegin, run(0, 2, 4467, kFp32)}, [](FrameHeader&) {}, kTwo);
  const auto receiver = make_channel("int8", {kPolicy, Revert::kFold});
  expect_code((*receiver)->decode(message, cut, kId, Into::kOverwrite, 1.0F), ErrorCode::kCorrupt);
}

// A run has one chunk, and no more elements than a chunk of raw values has.
TEST(PackedParts, ARunIsOneChunk) {
  Mixed mixed;
  const auto parts = mixed.named();
  const std::vector<std::byte> values(20, std::byte{0x40});
  for (const auto& ends : {std::vector<std::uint32_t>{20}, std::vector<std::uint32_t>{12, 20}}) {
    std::vector<std::byte> message;
    FrameBuilder builder(header_of(std::span(parts).first(3)), message);
    builder.add_segment({.part = 0, .count = 5, .codec = kFp32, .parts = 2}, values, ends);
    builder.finish();
    message.insert(message.end(), values.begin(), values.end());
    const auto receiver = make_channel("int8", {kPolicy, Revert::kFold});
    expect_code((*receiver)->decode(message, std::span(parts).first(3), kId, Into::kOverwrite, 1.0F),
                ends.size() == 1 ? std::nullopt : std::optional(ErrorCode::kCorrupt));
  }
  std::vector<float> long_values(65535), short_values(2);
  const Policy all_raw{1 << 20};
  for (const std::uint64_t second : {1U, 2U}) {
    const std::vector<Named> two{{"x", {long_values.data(), long_values.size(), DType::kF32}, 0},
                                 {"y", {short_values.data(), second, DType::kF32}, 0}};
    const auto count = static_cast<std::uint32_t>(65535 + second);
    std::vector<std::byte> message;
    const std::vector<std::byte> payload(4 * std::size_t{count});
    const std::vector<std::uint32_t> end{4 * count};
    FrameBuilder builder(header_of(two, kId, "int8", all_raw), message);
    builder.add_segment({.part = 0, .count = count, .codec = kFp32, .parts = 2}, payload, end);
    builder.finish();
    message.insert(message.end(), payload.begin(), payload.end());
    const auto receiver = make_channel("int8", {all_raw, Revert::kFold});
    expect_code((*receiver)->decode(message, two, kId, Into::kOverwrite, 1.0F),
                second == 1 ? std::nullopt : std::optional(ErrorCode::kCorrupt));
  }
}

// `counts` raw float32 parts of a channel that codes none.
struct Raw {
  explicit Raw(const std::vector<std::uint64_t>& counts) {
    std::uint32_t bits = 1;
    for (const std::uint64_t count : counts) {
      std::vector<float>& part = values.emplace_back(count);
      for (float& value : part) value = std::bit_cast<float>(bits = bits * 1664525U + 1013904223U);
      names.push_back("t" + std::to_string(names.size()));
    }
  }

  std::vector<Named> named() {
    std::vector<Named> parts;
    for (std::size_t i = 0; i < values.size(); ++i) {
      parts.push_back({names[i], {values[i].data(), values[i].size(), DType::kF32}, 0});
    }
    return parts;
  }

  std::deque<std::vector<float>> values;
  std::deque<std::string> names;
};

std::vector<std::byte> encoded(Channel& channel, const std::vector<Named>& parts) {
  const auto pieces = channel.encode(parts, kId);
  EXPECT_TRUE(pieces) << pieces.error().message;
  std::vector<std::byte> message;
  for (const Bytes piece : *pieces) message.insert(message.end(), piece.begin(), piece.end());
  return message;
}

// (parts, count) of each segment.
std::vector<std::pair<std::uint32_t, std::uint32_t>> segments_of(Bytes message,
                                                                 std::vector<int>* versions = nullptr) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> found;
  while (!message.empty()) {
    auto reader = FrameReader::open(message);
    EXPECT_TRUE(reader) << reader.error().message;
    if (!reader) return found;
    if (versions != nullptr) versions->push_back(reader->version());
    while (reader->segments_left() > 0) {
      const auto view = reader->next();
      EXPECT_TRUE(view) << view.error().message;
      found.emplace_back(view->segment.parts, view->segment.count);
    }
    message = message.subspan(reader->frame_bytes());
  }
  return found;
}

TEST(PackedParts, ManySmallTensorsCostLittleMoreThanTheirValues) {
  Raw raw(std::vector<std::uint64_t>(3000, 3));
  const auto sender = channel("int8", Revert::kExact, 256);
  const auto message = encoded(*sender, raw.named());
  EXPECT_LT(message.size(), 4 * 9000 + 60U);
  Raw slots(std::vector<std::uint64_t>(3000, 3));
  for (auto& values : slots.values) values.assign(3, 7.0F);
  const auto receiver = channel("int8", Revert::kExact, 256);
  const Status decoded = receiver->decode(message, slots.named(), kId, Into::kOverwrite, 1.0F);
  ASSERT_TRUE(decoded) << decoded.error().message;
  for (std::size_t i = 0; i < raw.values.size(); ++i) {
    for (std::size_t k = 0; k < 3; ++k) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(slots.values[i][k]),
                std::bit_cast<std::uint32_t>(raw.values[i][k]));
    }
  }
}

TEST(PackedParts, RunsEndAtAChunkOfRawValuesAndAtWhatIsCoded) {
  using Segments = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  struct Row {
    std::vector<std::uint64_t> counts;
    Segments segments;
    std::vector<int> versions;
  };
  const std::vector<Row> rows{
      {{5}, {{1, 5}}, {1}},
      {{5, 0}, {{1, 5}}, {1}},
      {{5, 0, 0, 6}, {{2, 11}}, {2}},
      {{65535, 1}, {{2, 65536}}, {2}},
      {{65535, 2}, {{1, 65535}, {1, 2}}, {1}},
      {{65534, 2, 3, 4}, {{2, 65536}, {2, 7}}, {2}},
      {{65536, 1, 1}, {{1, 65536}, {2, 2}}, {2}},
      // Of 65,537 elements, in two chunks: a part of its own.
      {{1, 65537, 1, 1}, {{1, 1}, {1, 65537}, {2, 2}}, {2}},
      // More than a frame's payload.
      {{30000, 30000, 30000, 30000, 30000, 30000, 30000, 30000, 30000, 30000},
       {{2, 60000}, {2, 60000}, {2, 60000}, {2, 60000}, {2, 60000}},
       {2, 2}},
  };
  for (const Row& row : rows) {
    Raw raw(row.counts);
    const auto sender = channel("int8", Revert::kExact, 1 << 20);
    const auto message = encoded(*sender, raw.named());
    std::vector<int> versions;
    EXPECT_EQ(segments_of(message, &versions), row.segments);
    EXPECT_EQ(versions, row.versions);
    for (auto& values : raw.values) values.assign(values.size(), 0.0F);
    const Status decoded = sender->decode(message, raw.named(), kId, Into::kOverwrite, 1.0F);
    EXPECT_TRUE(decoded) << decoded.error().message;
    Raw expected(row.counts);
    for (std::size_t i = 0; i < raw.values.size(); ++i) {
      EXPECT_TRUE(same_bits(raw.values[i], expected.values[i])) << i;
    }
  }
}

TEST(PackedParts, WhatWaitsEndsARun) {
  std::vector<float> weights(600, 0.5F), first(5, 1.0F), second(6, 2.0F);
  const std::vector<Named> parts{{"a", {first.data(), 5, DType::kF32}, 0},
                                 {"w", {weights.data(), 600, DType::kF32}, 0},
                                 {"b", {second.data(), 6, DType::kF32}, 0}};
  const auto sender = channel("int8", Revert::kExact, 256);
  EXPECT_EQ(segments_of(encoded(*sender, parts)),
            (std::vector<std::pair<std::uint32_t, std::uint32_t>>{{1, 5}, {1, 600}, {1, 6}}));
}

// Of a run a folding revert keeps each part's own values.
TEST(PackedParts, AFoldedRunWaitsPartByPart) {
  Raw raw({4, 5, 6});
  for (auto& values : raw.values) values.assign(values.size(), static_cast<float>(values.size()));
  const auto sender = channel("int8", Revert::kFold, 256);
  encoded(*sender, raw.named());
  sender->revert();
  const auto message = encoded(*sender, raw.named());
  for (auto& values : raw.values) values.assign(values.size(), 0.0F);
  const Status decoded = sender->decode(message, raw.named(), kId, Into::kOverwrite, 1.0F);
  ASSERT_TRUE(decoded) << decoded.error().message;
  for (const auto& values : raw.values) {
    for (const float value : values) EXPECT_EQ(value, 2.0F * static_cast<float>(values.size()));
  }
}

// Accumulated and scaled, into float32 and into lists of pairs.
TEST(PackedParts, AreScaledAndAddedUpLikeOthers) {
  Mixed mixed;
  mixed.a = {1, -2, 0};
  mixed.b = {4, 8};
  mixed.c = {0x3F80, 0, 0xC000, 0x4080};  // 1, 0, -2, 4
  mixed.d = {0x3F00, 0x3F00, 0, 0, 0x3F80};
  const auto parts = mixed.named();
  const auto sender = make_channel("fp32", {kPolicy, Revert::kExact});
  const auto message = encoded(**sender, parts);
  EXPECT_EQ(segments_of(message).size(), 6U);
  std::vector<Pairs> means(parts.size());
  const Status listed = (*sender)->decode_pairs(message, parts, kId, 0.5F, means);
  ASSERT_TRUE(listed) << listed.error().message;
  EXPECT_EQ(means[0].keys, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(means[0].values, (std::vector<float>{0.5F, -1.0F}));
  EXPECT_EQ(means[3].keys, (std::vector<std::uint32_t>{0, 2, 3}));
  EXPECT_EQ(means[3].values, (std::vector<float>{0.5F, -1.0F, 2.0F}));
  EXPECT_EQ(means[4].keys, (std::vector<std::uint32_t>{0, 1, 4}));
  std::vector<std::vector<float>> sums;
  std::vector<Named> slots = parts;
  for (Named& slot : slots) {
    slot.summed_dtype = slot.tensor.dtype;
    slot.tensor.dtype = DType::kF32;
    slot.tensor.values = sums.emplace_back(slot.tensor.count, 1.0F).data();
  }
  const MessageLayout layout(slots, MessageLayout::hash_of(parts));
  const Status added = (*sender)->decode(message, layout, kId, Into::kAccumulate, 2.0F);
  ASSERT_TRUE(added) << added.error().message;
  EXPECT_EQ(sums[0], (std::vector<float>{3, -3, 1}));
  EXPECT_EQ(sums[2], (std::vector<float>{9, 17}));
  EXPECT_EQ(sums[3], (std::vector<float>{3, 1, -3, 9}));
  EXPECT_EQ(sums[4], (std::vector<float>{2, 2, 1, 1, 3}));
}

}  // namespace
}  // namespace deltawire::packed_parts_test
