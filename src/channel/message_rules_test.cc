// docs/reference/format.md, section 3, "A message" and "Order of errors": each rule is broken behind good
// checksums, so that the rule itself has to refuse; and where an encoder must close a frame.
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "channel/message_encoder.h"
#include "channel/message_testing.h"
#include "deltawire/channel.h"
#include "wire/frame_testing.h"

namespace deltawire::message_rules_test {
namespace {

using namespace testing;

Status decode(const std::vector<std::byte>& message, Parts& parts) {
  const auto channel = make_channel("int8", {kPolicy, Revert::kFold});
  return (*channel)->decode(message, parts.named(), kId, Into::kOverwrite, 1.0F);
}

TEST(MessageRules, Segments) {
  struct Rule {
    std::string name;
    std::vector<Piece> pieces;
    std::optional<ErrorCode> error;
  };
  const std::vector<Rule> rules{
      {"whole parts", {kLarge, kSmall}, std::nullopt},
      {"cut at a chunk", {kLargeBegin, kLargeRest, kSmall}, std::nullopt},
      {"a frame for each", {kLargeBegin, in_new_frame(kLargeRest), in_new_frame(kSmall)}, std::nullopt},
      {"no last part", {kLarge}, ErrorCode::kTruncated},
      {"no first part", {kSmall}, ErrorCode::kCorrupt},
      {"no rest of a part", {kLargeBegin, kSmall}, ErrorCode::kCorrupt},
      {"nothing after the begin", {kLargeBegin}, ErrorCode::kTruncated},
      {"other order", {kSmall, kLarge}, ErrorCode::kCorrupt},
      {"a part twice", {kLarge, kLarge, kSmall}, ErrorCode::kCorrupt},
      {"a segment after the last part", {kLarge, kSmall, kSmall}, ErrorCode::kCorrupt},
      {"a frame after the last part", {kLarge, kSmall, in_new_frame(kSmall)}, ErrorCode::kCorrupt},
      {"another part's index", {{1, kInt8, 0, 70000}, kSmall}, ErrorCode::kCorrupt},
      {"an index beyond the parts", {kLarge, {3, kFp32, 0, 3}}, ErrorCode::kCorrupt},
      {"begin too large", {kLarge, {2, kFp32, 1, 3}}, ErrorCode::kCorrupt},
      {"begin of the tensor, not of the part", {kLarge, {2, kFp32, 1000, 3}}, ErrorCode::kCorrupt},
      {"a gap", {{0, kInt8, 0, 65536}, {0, kInt8, 65537, 4463}, kSmall}, ErrorCode::kCorrupt},
      {"an overlap", {{0, kInt8, 0, 65536}, {0, kInt8, 65535, 4465}, kSmall}, ErrorCode::kCorrupt},
      {"one element more", {{0, kInt8, 0, 70001}, kSmall}, ErrorCode::kCorrupt},
      {"one element more at the end", {kLarge, {2, kFp32, 0, 4}}, ErrorCode::kCorrupt},
      {"one element less at the end", {kLarge, {2, kFp32, 0, 2}}, ErrorCode::kCorrupt},
      {"a cut inside a chunk", {{0, kInt8, 0, 65535}, {0, kInt8, 65535, 4465}, kSmall}, ErrorCode::kCorrupt},
      {"a small part cut inside its chunk",
       {kLarge, {2, kFp32, 0, 1}, {2, kFp32, 1, 2}},
       ErrorCode::kCorrupt},
      {"a large part raw", {{0, kFp32, 0, 70000}, kSmall}, ErrorCode::kCorrupt},
      {"the rest of a large part raw", {kLargeBegin, {0, kFp32, 65536, 4464}, kSmall}, ErrorCode::kCorrupt},
      {"a small part not raw", {kLarge, {2, kInt8, 0, 3}}, ErrorCode::kCorrupt},
      {"a codec that nobody has", {{0, 999, 0, 70000}, kSmall}, ErrorCode::kCorrupt},
      {"a scalar", {{.count = 70000, .scalar = 1}, kSmall}, std::nullopt},
      {"a second scalar, which the codec has not",
       {{.count = 70000, .scalar = 1, .scalar2 = 1}, kSmall},
       ErrorCode::kCorrupt},
      {"a raw part's scalar",
       {kLarge, {.part = 2, .codec = kFp32, .count = 3, .scalar = 1}},
       ErrorCode::kCorrupt},
  };
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.name);
    Parts parts;
    expect_code(decode(message_of(header_of(parts.named()), rule.pieces), parts), rule.error);
  }
}

TEST(MessageRules, BytesBehindTheLastPart) {
  Parts parts;
  const auto good = message_of(header_of(parts.named()), {kLarge, kSmall});
  for (const std::size_t more : {1U, 27U, 28U, 200U}) {
    SCOPED_TRACE(more);
    auto message = good;
    message.resize(good.size() + more);
    expect_code(decode(message, parts), ErrorCode::kCorrupt);
  }
  expect_code(decode({}, parts), ErrorCode::kTruncated);
  // Parts without elements take no bytes at all.
  const auto channel = make_channel("fp32", {});
  const std::vector<Named> empty{{"empty", {nullptr, 0, DType::kF32}, 0}};
  expect_code((*channel)->decode(Bytes{}, empty, kId, Into::kOverwrite, 1.0F), std::nullopt);
  expect_code((*channel)->decode(std::vector<std::byte>(1), empty, kId, Into::kOverwrite, 1.0F),
              ErrorCode::kCorrupt);
}

// A codec that is never cut: its parts are whole segments, wherever the bytes would allow a cut.
TEST(MessageRules, ACodecWithoutChunksIsNeverCut) {
  std::vector<float> values(1000, 1.0F);
  const std::vector<Named> parts{{"w", {values.data(), values.size(), DType::kF32}, 0}};
  const auto channel = make_channel("fastsgd", {Policy{0}, Revert::kFold});
  ASSERT_TRUE(channel) << channel.error().message;
  const auto pieces = (*channel)->encode(parts, kId);
  ASSERT_TRUE(pieces) << pieces.error().message;
  std::vector<std::byte> message;
  for (const Bytes piece : *pieces) message.insert(message.end(), piece.begin(), piece.end());
  expect_code((*channel)->decode(message, parts, kId, Into::kOverwrite, 1.0F), std::nullopt);
  const auto reader = FrameReader::open(message);
  ASSERT_TRUE(reader) << reader.error().message;
  std::byte* const count = message.data() + reader->header_bytes() + 2;  // 1,000: 0xE8 7, behind tag and part
  ASSERT_EQ(count[0], std::byte{0xE8});
  count[0] = std::byte{0xE7};
  repair_crc(message);
  const Status cut = (*channel)->decode(message, parts, kId, Into::kOverwrite, 1.0F);
  expect_code(cut, ErrorCode::kCorrupt);
  EXPECT_NE(cut.error().message.find("not the one that is due"), std::string::npos) << cut.error().message;
}

// What must match, in the order in which it is compared. Each row breaks its own field and all later ones,
// and has to be named.
TEST(MessageRules, FieldsAreComparedInThePagesOrder) {
  struct Field {
    std::string name;
    Spoil spoil;
  };
  const std::vector<Field> fields{
      {"params_hash", [](FrameHeader& header) { ++header.params_hash; }},
      {"world", [](FrameHeader& header) { ++header.message.world; }},
      {"rank", [](FrameHeader& header) { --header.message.rank; }},
      {"step", [](FrameHeader& header) { ++header.message.step; }},
      {"bucket", [](FrameHeader& header) { ++header.message.bucket; }},
      {"stage", [](FrameHeader& header) { ++header.message.stage; }},
      {"other tensors", [](FrameHeader& header) { ++header.layout_hash; }},
      {"scale", [](FrameHeader& header) { header.message.scale = 2; }},
      {"seq", [](FrameHeader& header) { ++header.seq; }},
  };
  for (std::size_t broken = 0; broken < fields.size(); ++broken) {
    SCOPED_TRACE(fields[broken].name);
    const auto spoil_rest = [&](FrameHeader& header) {
      for (std::size_t i = broken; i < fields.size(); ++i) fields[i].spoil(header);
    };
    Parts parts;
    const auto message = message_of(header_of(parts.named()), {kLarge, kSmall}, spoil_rest);
    const Status status = decode(message, parts);
    expect_code(status, ErrorCode::kMismatch);
    EXPECT_NE(status.error().message.find("has " + fields[broken].name), std::string::npos)
        << status.error().message;
  }
}

TEST(MessageRules, FramesCountUp) {
  struct Count {
    std::string name;
    std::vector<std::uint32_t> seqs;
    std::optional<ErrorCode> error;
  };
  const std::vector<Count> counts{{"from 0", {0, 1, 2}, std::nullopt},
                                  {"from 1", {1, 2, 3}, ErrorCode::kMismatch},
                                  {"one missing", {0, 2, 3}, ErrorCode::kMismatch},
                                  {"one repeated", {0, 1, 1}, ErrorCode::kMismatch},
                                  {"all 0", {0, 0, 0}, ErrorCode::kMismatch},
                                  {"downwards", {2, 1, 0}, ErrorCode::kMismatch}};
  for (const Count& count : counts) {
    SCOPED_TRACE(count.name);
    Parts parts;
    const auto renumber = [&](FrameHeader& header) {
      if (header.seq < count.seqs.size()) header.seq = count.seqs[header.seq];
    };
    const auto message = message_of(header_of(parts.named()),
                                    {kLargeBegin, in_new_frame(kLargeRest), in_new_frame(kSmall)}, renumber);
    expect_code(decode(message, parts), count.error);
  }
}

// Every frame, not the first alone.
TEST(MessageRules, LaterFramesAreComparedToo) {
  Parts parts;
  const auto other_step = [](FrameHeader& header) { header.message.step += header.seq; };
  const auto message = message_of(header_of(parts.named()), {kLarge, in_new_frame(kSmall)}, other_step);
  expect_code(decode(message, parts), ErrorCode::kMismatch);
}

// The payload bytes of each frame that frame_message makes of one part whose chunks end here.
std::vector<std::uint64_t> frames_of(const std::vector<std::vector<std::uint32_t>>& chunk_bytes) {
  const auto codec = make_codec("fp32");
  std::uint64_t payload_bytes = 0;
  std::vector<std::uint32_t> chunk_ends;
  for (const auto& chunks : chunk_bytes) {
    std::uint32_t end = 0;
    for (const std::uint32_t bytes : chunks) chunk_ends.push_back(end += bytes);
    payload_bytes += end;
  }
  BufferPool pool(nullptr, MemoryMeter::Use::kMessages);
  Message message;
  message.payload = pool.take(payload_bytes);
  std::vector<SentPart> parts;
  std::uint64_t at = 0;
  std::size_t chunk = 0;
  for (const auto& chunks : chunk_bytes) {
    SentPart part;
    part.index = static_cast<std::uint32_t>(parts.size());
    part.codec = codec->get();
    part.count = 65536 * (chunks.size() - 1) + 1;
    const std::span<const std::uint32_t> ends(chunk_ends.data() + chunk, chunks.size());
    part.encoded = PartView{Bytes(message.payload.bytes()).subspan(at, ends.back()), ends};
    at += ends.back();
    chunk += chunks.size();
    parts.push_back(part);
  }
  FrameHeader header;
  header.seq = 7;  // of another message: this one counts from 0
  frame_message(parts, header, message);
  std::vector<std::uint64_t> frames;
  std::uint64_t framed = 0;
  for (std::size_t i = 0; i < message.pieces.size(); i += 2) {
    frames.push_back(message.pieces[i + 1].size());
    framed += message.pieces[i].size();
    std::vector<std::byte> frame(message.pieces[i].begin(), message.pieces[i].end());
    frame.insert(frame.end(), message.pieces[i + 1].begin(), message.pieces[i + 1].end());
    const auto reader = FrameReader::open(frame);
    EXPECT_TRUE(reader) << reader.error().message;
    EXPECT_EQ(reader->header().seq, i / 2);
  }
  const MessageLists lists = lists_of(payload_bytes, chunk, parts.size());
  EXPECT_LE(framed, lists.head_bytes);
  EXPECT_LE(message.pieces.size(), lists.pieces);
  return frames;
}

TEST(MessageRules, AFrameClosesBeforeTheChunkThatWouldPassOneMebibyte) {
  constexpr std::uint32_t kMiB = 1 << 20;
  constexpr std::uint32_t kQuarter = kMiB / 4;
  using Frames = std::vector<std::uint64_t>;
  // Within a part.
  EXPECT_EQ(frames_of({{kQuarter, kQuarter, kQuarter, kQuarter}}), (Frames{kMiB}));
  EXPECT_EQ(frames_of({{kQuarter, kQuarter, kQuarter, kQuarter, 1}}), (Frames{kMiB, 1}));
  EXPECT_EQ(frames_of({{kQuarter, kQuarter, kQuarter, kQuarter - 1, 1}}), (Frames{kMiB}));
  EXPECT_EQ(frames_of({{kQuarter, kQuarter, kQuarter, kQuarter + 1}}),
            (Frames{kMiB - kQuarter, kQuarter + 1}));
  // Where a part begins.
  EXPECT_EQ(frames_of({{kMiB - 1}, {1}}), (Frames{kMiB}));
  EXPECT_EQ(frames_of({{kMiB - 1}, {2}}), (Frames{kMiB - 1, 2}));
  EXPECT_EQ(frames_of({{kMiB}, {1}}), (Frames{kMiB, 1}));
  EXPECT_EQ(frames_of({{kQuarter}, {kQuarter, kQuarter, kQuarter, 1}}), (Frames{kMiB, 1}));
  // A chunk that is longer than that stands alone.
  EXPECT_EQ(frames_of({{kMiB + 1}}), (Frames{kMiB + 1}));
  EXPECT_EQ(frames_of({{kMiB + 1, 1}}), (Frames{kMiB + 1, 1}));
  EXPECT_EQ(frames_of({{1, kMiB + 1, 1}}), (Frames{1, kMiB + 1, 1}));
  EXPECT_EQ(frames_of({{1}, {2 * kMiB}, {1}}), (Frames{1, 2 * kMiB, 1}));
  // Frames half full, of which there are most.
  EXPECT_EQ(frames_of({std::vector<std::uint32_t>(8, kMiB / 2 + 1)}), Frames(8, kMiB / 2 + 1));
}

TEST(MessageRules, AFrameHasAtMost65535Segments) {
  const std::vector<std::vector<std::uint32_t>> full(65535, {1});
  EXPECT_EQ(frames_of(full), (std::vector<std::uint64_t>{65535}));
  auto more = full;
  more.push_back({1});
  EXPECT_EQ(frames_of(more), (std::vector<std::uint64_t>{65535, 1}));
  // Many frames for their segments alone: the bound knows them.
  EXPECT_EQ(frames_of(std::vector<std::vector<std::uint32_t>>(4 * 65535 + 1, {1})).size(), 5u);
}

}  // namespace
}  // namespace deltawire::message_rules_test
