// docs/reference/format.md, section 3, rule by rule: each is broken under a good checksum, so that the rule
// itself must refuse, with the error that the page names; and next to each limit is what is still allowed.
#include <bit>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "wire/frame_testing.h"

namespace deltawire {
namespace {

using namespace frame_layout;
using testing::Frame;
using testing::HandMade;

constexpr unsigned kCrc = HandMade::kCrc;

// The layout of small_frame: its header, two segments of 2 and 1 chunks, 9 bytes of payload.
constexpr std::size_t kHeader = 28 + 6;
constexpr std::size_t kHead = kHeader + (14 + 2 * 5) + (5 + 5);
constexpr std::size_t kBytes = kHead + 9;

using Change = std::function<void(Frame&)>;

Change u8(std::size_t at, unsigned value) {
  return [=](Frame& frame) { frame[at] = static_cast<std::byte>(value); };
}

Change u16(std::size_t at, unsigned value) {
  return [=](Frame& frame) { store_le<std::uint16_t>(frame.data() + at, static_cast<std::uint16_t>(value)); };
}

Change u32(std::size_t at, std::uint64_t value) {
  return [=](Frame& frame) { store_le<std::uint32_t>(frame.data() + at, static_cast<std::uint32_t>(value)); };
}

Change both(Change one, Change other) {
  return [=](Frame& frame) {
    one(frame);
    other(frame);
  };
}

// After the head's checksum has been repaired.
Change cut_to(std::size_t bytes) {
  return [=](Frame& frame) { frame.resize(bytes); };
}

// A frame of one chunk that claims to be so long, with a number of 4 or 5 bytes.
Change frame_of(std::uint64_t bytes) {
  return [=](Frame& frame) {
    const bool longer = bytes - kHeader - 13 >= 1U << 28;
    const std::uint64_t chunk = bytes - kHeader - (longer ? 14 : 13);
    HandMade made{.segment = {0, 0, 1, 1, 1}};
    std::vector<std::byte> number;
    for (std::uint64_t rest = chunk; number.size() < (longer ? 5 : 4); rest >>= 7) {
      number.push_back(static_cast<std::byte>((rest & 0x7F) | (number.size() < (longer ? 4 : 3) ? 0x80 : 0)));
    }
    for (const std::byte byte : number) made.segment.push_back(std::to_integer<unsigned>(byte));
    made.segment.push_back(kCrc);
    frame = made.frame();
    u32(kFrameBytesAt, bytes)(frame);
  };
}

Change nothing() {
  return [](Frame&) {};
}

struct Rule {
  std::string name;
  Change change;                   // then the head's checksum is repaired
  std::optional<ErrorCode> error;  // none: a good frame
  Change after = nothing();        // with the checksum as it is
};

std::vector<Rule> start_rules() {
  return {
      {"as it was", nothing(), std::nullopt},
      {"27 bytes", nothing(), ErrorCode::kTruncated, cut_to(27)},
      {"28 bytes", nothing(), ErrorCode::kTruncated, cut_to(28)},
      {"28 bytes are enough to be looked at", u8(0, 0), ErrorCode::kCorrupt, cut_to(28)},
      {"no bytes", nothing(), ErrorCode::kTruncated, cut_to(0)},
      {"magic above", u8(3, 0x47), ErrorCode::kCorrupt},
      {"magic below", u8(3, 0x45), ErrorCode::kCorrupt},
      {"version 0", u8(kVersionAt, 0), ErrorCode::kUnsupportedVersion},
      {"version 5", u8(kVersionAt, 5), ErrorCode::kUnsupportedVersion},
      {"version 255", u8(kVersionAt, 255), ErrorCode::kUnsupportedVersion},
      {"head_bytes 1 less", u32(kHeadBytesAt, kHead - 1), ErrorCode::kCorrupt},
      {"head_bytes 1 more", u32(kHeadBytesAt, kHead + 1), ErrorCode::kCorrupt},
      {"head_bytes 0", u32(kHeadBytesAt, 0), ErrorCode::kCorrupt},
      {"head_bytes 27", u32(kHeadBytesAt, 27), ErrorCode::kCorrupt},
      {"head_bytes 28", u32(kHeadBytesAt, 28), ErrorCode::kCorrupt},
      {"cut in the head", nothing(), ErrorCode::kTruncated, cut_to(kHead - 1)},
      {"the head alone", nothing(), ErrorCode::kTruncated, cut_to(kHead)},
      {"a head beyond the bytes", u32(kHeadBytesAt, kBytes + 1), ErrorCode::kTruncated},
      {"checksum", nothing(), ErrorCode::kCorrupt, u8(kCrcAt, 1)},
      {"a bit before the checksum", nothing(), ErrorCode::kCorrupt, u8(kSegmentsAt, 3)},
      {"a bit behind the checksum", nothing(), ErrorCode::kCorrupt, u8(kParamsHashAt, 0)},
  };
}

std::vector<Rule> length_rules() {
  return {
      {"flag bit 0", u8(kFlagsAt, 1), ErrorCode::kCorrupt},
      {"flag bits 0 and 1", u8(kFlagsAt, 3), ErrorCode::kCorrupt},
      {"flag bit 2", u8(kFlagsAt, 4), ErrorCode::kCorrupt},
      {"flag bit 7", u8(kFlagsAt, 128), ErrorCode::kCorrupt},
      {"no segments", u16(kSegmentsAt, 0), ErrorCode::kCorrupt},
      {"a segment less", u16(kSegmentsAt, 1), ErrorCode::kCorrupt},
      {"a segment more", u16(kSegmentsAt, 3), ErrorCode::kCorrupt},
      {"2^28 bytes", frame_of(kMaxFrameBytes), ErrorCode::kTruncated},
      {"2^28 + 1 bytes", frame_of(kMaxFrameBytes + 1), ErrorCode::kLimit},
      {"2^32 - 1 bytes", frame_of(UINT32_MAX), ErrorCode::kLimit},
      {"frame_bytes below the head", u32(kFrameBytesAt, kHead - 1), ErrorCode::kCorrupt},
      {"frame_bytes 0", u32(kFrameBytesAt, 0), ErrorCode::kCorrupt},
      {"frame_bytes 1 less", u32(kFrameBytesAt, kBytes - 1), ErrorCode::kCorrupt},
      {"frame_bytes 1 more", u32(kFrameBytesAt, kBytes + 1), ErrorCode::kCorrupt},
      {"a payload cut short", nothing(), ErrorCode::kTruncated, cut_to(kBytes - 1)},
      {"a chunk's checksum", u8(kHead - 1, 0), ErrorCode::kCorrupt},
      {"a payload bit", nothing(), ErrorCode::kCorrupt, u8(kBytes - 1, 0)},
  };
}

// Two rules are broken at once: the page's order says which one is reported.
std::vector<Rule> order_rules() {
  const Change limit = frame_of(kMaxFrameBytes + 1);
  const Change no_count = u8(kHeader + 5, 0);
  return {
      {"magic before version", both(u8(0, 0), u8(kVersionAt, 5)), ErrorCode::kCorrupt},
      {"version before head_bytes", both(u8(kVersionAt, 5), u32(kHeadBytesAt, 0)),
       ErrorCode::kUnsupportedVersion},
      {"head_bytes before its end", both(u32(kHeadBytesAt, 27), cut_to(28)), ErrorCode::kCorrupt},
      {"head's end before checksum", nothing(), ErrorCode::kTruncated,
       both(u8(kCrcAt, 1), cut_to(kHead - 1))},
      {"checksum before limit", limit, ErrorCode::kCorrupt, u8(kCrcAt, 1)},
      {"flags before limit", both(limit, u8(kFlagsAt, 1)), ErrorCode::kCorrupt},
      {"no segments before limit", both(limit, u16(kSegmentsAt, 0)), ErrorCode::kCorrupt},
      {"limit before fields", both(limit, u8(kHeader - 1, 0)), ErrorCode::kLimit},
      {"segments before payload", no_count, ErrorCode::kCorrupt, cut_to(kHead)},
      {"the chunks' sum before payload", u32(kFrameBytesAt, kBytes + 1), ErrorCode::kCorrupt, cut_to(kHead)},
      {"rank before payload", u8(kHeader - 2, 4), ErrorCode::kCorrupt, cut_to(kHead)},
  };
}

void expect_code(const Status& read, const std::optional<ErrorCode>& error) {
  if (error) {
    ASSERT_FALSE(read) << "accepted";
    EXPECT_EQ(error_code_name(read.error().code), error_code_name(*error)) << read.error().message;
  } else {
    EXPECT_TRUE(read) << read.error().message;
  }
}

// Of bare_frame(true): nothing, then not finite; no payload.
std::vector<Rule> bare_rules() {
  constexpr std::size_t kAll = kHeader + 5 + 7;
  return {
      {"no chunks, no payload", nothing(), std::nullopt},
      {"the other state", u8(kHeader, 2), std::nullopt},
      {"coded without a chunk", u8(kHeader, 0), ErrorCode::kCorrupt},
      {"the last one coded", u8(kHeader + 5, 0), ErrorCode::kCorrupt},
      {"frame_bytes 1 less", u32(kFrameBytesAt, kAll - 1), ErrorCode::kCorrupt},
      {"a byte of payload", u32(kFrameBytesAt, kAll + 1), ErrorCode::kCorrupt,
       [](Frame& frame) { frame.push_back(std::byte{0}); }},
      {"cut in the head", nothing(), ErrorCode::kTruncated, cut_to(kAll - 1)},
      {"limit before state", both(u32(kFrameBytesAt, kMaxFrameBytes + 1), u8(kHeader, 3)), ErrorCode::kLimit},
  };
}

void expect_rules(const std::vector<Rule>& rules, const Frame& good = testing::small_frame()) {
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.name);
    Frame frame = good;
    rule.change(frame);
    testing::repair_crc(frame);
    rule.after(frame);
    expect_code(testing::read_all(frame), rule.error);
  }
}

TEST(FrameRules, Start) {
  expect_rules(start_rules());
}

TEST(FrameRules, Lengths) {
  expect_rules(length_rules());
}

TEST(FrameRules, OrderOfChecks) {
  expect_rules(order_rules());
}

TEST(FrameRules, BareSegments) {
  expect_rules(bare_rules(), testing::bare_frame(true));
}

// A frame of one bare segment of part 0 with 1 element.
HandMade with_fields(std::vector<unsigned> fields, unsigned flags = 0) {
  return {.flags = flags, .fields = std::move(fields), .segment = {1, 0, 1}};
}

// The fp32 of a scale, then the other fields.
HandMade with_scale(float scale) {
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  HandMade made = with_fields({bits & 0xFF, bits >> 8 & 0xFF, bits >> 16 & 0xFF, bits >> 24}, 2);
  for (const unsigned field : {7U, 9U, 2U, 1U, 3U, 4U}) made.fields.push_back(field);
  return made;
}

TEST(FrameRules, Fields) {
  constexpr auto kCorrupt = ErrorCode::kCorrupt;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<unsigned> ff(9, 0xFF);
  std::vector<unsigned> longest{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1};
  std::vector<unsigned> too_long{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2};
  for (auto* step : {&longest, &too_long}) step->insert(step->end(), {0, 0, 0, 0, 1});
  struct Row {
    std::string name;
    HandMade made;
    std::optional<ErrorCode> error;
  };
  const std::vector<Row> rows{
      {"all 0 in a world of 1", with_fields({0, 0, 0, 0, 0, 1}), std::nullopt},
      {"step 2^64 - 1", with_fields(longest), std::nullopt},
      {"step 2^64 + 2^63 - 1", with_fields(too_long), kCorrupt},
      {"step in a longer form", with_fields({0x80, 0, 0, 0, 0, 0, 1}), kCorrupt},
      {"bucket 65,535", with_fields({0, 0xFF, 0xFF, 3, 0, 0, 0, 1}), std::nullopt},
      {"bucket 65,536", with_fields({0, 0x80, 0x80, 4, 0, 0, 0, 1}), kCorrupt},
      {"stage 65,535", with_fields({0, 0, 0xFF, 0xFF, 3, 0, 0, 1}), std::nullopt},
      {"stage 65,536", with_fields({0, 0, 0x80, 0x80, 4, 0, 0, 1}), kCorrupt},
      {"seq 2^32 - 1", with_fields({0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 15, 0, 1}), std::nullopt},
      {"seq 2^32", with_fields({0, 0, 0, 0x80, 0x80, 0x80, 0x80, 16, 0, 1}), kCorrupt},
      {"rank equal to world", with_fields({0, 0, 0, 0, 4, 4}), kCorrupt},
      {"rank above world", with_fields({0, 0, 0, 0, 5, 4}), kCorrupt},
      {"no world", with_fields({0, 0, 0, 0, 0, 0}), kCorrupt},
      {"rank 65,534 of 65,535", with_fields({0, 0, 0, 0, 0xFE, 0xFF, 3, 0xFF, 0xFF, 3}), std::nullopt},
      {"rank 65,535 of 65,536", with_fields({0, 0, 0, 0, 0xFF, 0xFF, 3, 0x80, 0x80, 4}), kCorrupt},
      {"scale 2", with_scale(2), std::nullopt},
      {"the smallest scale", with_scale(0x1p-149F), std::nullopt},
      {"the largest scale", with_scale(std::numeric_limits<float>::max()), std::nullopt},
      {"scale 1", with_scale(1), kCorrupt},
      {"scale 0", with_scale(0), kCorrupt},
      {"scale -0", with_scale(-0.0F), kCorrupt},
      {"scale -2", with_scale(-2), kCorrupt},
      {"scale infinite", with_scale(kInfinity), kCorrupt},
      {"scale NaN", with_scale(std::numeric_limits<float>::quiet_NaN()), kCorrupt},
      {"the head ends in the scale", {.flags = 2, .fields = {0, 0, 0}}, kCorrupt},
      {"the head ends in the fields", {.fields = {0, 0, 0, 0, 0}}, kCorrupt},
      {"the head ends in a number", {.fields = {0, 0, 0, 0, 0, 0x81}}, kCorrupt},
      {"the head ends behind the fields", {.fields = {0, 0, 0, 0, 0, 1}}, kCorrupt},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    expect_code(testing::read_all(row.made.frame()), row.error);
  }
}

struct SegmentRow {
  std::string name;
  std::vector<unsigned> segment;
  bool good = false;
  std::vector<std::uint32_t> chunks{5};
};

using Text = std::vector<unsigned>;

Text between(Text head, const Text& middle, const Text& tail) {
  head.insert(head.end(), middle.begin(), middle.end());
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

const Text kMost{0xFF, 0xFF, 0xFF, 0xFF, 15};  // 2^32 - 1

std::vector<SegmentRow> first_bytes() {
  return {
      {"coded", {0, 0, 1, 3, 1, 5, kCrc}, true},
      {"coded, two chunks", {0, 0, 1, 3, 2, 5, kCrc, 6, kCrc}, true, {5, 6}},
      {"a scalar", {4, 0, 1, 3, 1, 0, 0, 0, 1, 5, kCrc}, true},
      {"two scalars", {8, 0, 1, 3, 0, 0, 0, 0, 1, 0, 0, 0, 1, 5, kCrc}, true},
      {"three scalars", {12, 0, 1, 3, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 5, kCrc}},
      {"three scalars, of which two are there", {12, 0, 1, 3, 1, 0, 0, 0, 1, 0, 0, 0, 1, 5, kCrc}},
      {"a scalar of 0", {4, 0, 1, 3, 0, 0, 0, 0, 1, 5, kCrc}},
      {"a second scalar of 0", {8, 0, 1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 1, 5, kCrc}},
      {"a begin", {16, 0, 1, 1, 3, 1, 5, kCrc}, true},
      {"a begin of 0", {16, 0, 0, 1, 3, 1, 5, kCrc}},
      {"nothing", {1, 0, 1}, true, {}},
      {"not finite", {2, 0, 1}, true, {}},
      {"state 3", {3, 0, 1}, false, {}},
      {"bare with a begin", {17, 0, 1, 1}, false, {}},
      {"bare with a scalar", {5, 0, 1, 1, 0, 0, 0}, false, {}},
      {"bare with a scalar that is not there", {5, 0, 1}, false, {}},
      {"bare with chunks", {1, 0, 1, 3, 1, 5, kCrc}},
      {"bit 5", {32, 0, 1, 3, 1, 5, kCrc}},
      {"bit 7", {128, 0, 1, 3, 1, 5, kCrc}},
  };
}

std::vector<SegmentRow> numbers() {
  return {
      {"part 2^32 - 1", between({0}, kMost, {1, 3, 1, 5, kCrc}), true},
      {"part 2^32", {0, 0x80, 0x80, 0x80, 0x80, 16, 1, 3, 1, 5, kCrc}},
      {"part in a longer form", {0, 0x80, 0, 1, 3, 1, 5, kCrc}},
      {"no elements", {0, 0, 0, 3, 1, 5, kCrc}},
      {"2^32 - 1 elements", between({0, 0}, kMost, {3, 1, 5, kCrc}), true},
      {"2^32 elements", {0, 0, 0x80, 0x80, 0x80, 0x80, 16, 3, 1, 5, kCrc}},
      {"up to 2^32 - 1", {16, 0, 1, 0xFE, 0xFF, 0xFF, 0xFF, 15, 3, 1, 5, kCrc}, true},
      {"up to 2^32", between({16, 0, 1}, kMost, {3, 1, 5, kCrc})},
      {"codec 65,535", {0, 0, 1, 0xFF, 0xFF, 3, 1, 5, kCrc}, true},
      {"codec 65,536", {0, 0, 1, 0x80, 0x80, 4, 1, 5, kCrc}},
      {"no codec", {0, 0, 1, 0, 1, 5, kCrc}},
  };
}

std::vector<SegmentRow> chunk_rows() {
  return {
      {"no chunks", {0, 0, 1, 3, 0}, false, {}},
      {"fewer chunks than there are", {0, 0, 1, 3, 1, 5, kCrc, 6, kCrc}, false, {5, 6}},
      {"more chunks than there are", {0, 0, 1, 3, 2, 5, kCrc}},
      {"2^32 - 1 chunks", between({0, 0, 1, 3}, kMost, {5, kCrc})},
      {"an empty chunk", {0, 0, 1, 3, 2, 5, kCrc, 0, kCrc}, false, {5, 0}},
      {"a chunk less than the payload", {0, 0, 1, 3, 1, 4, kCrc}},
      {"a chunk more than the payload", {0, 0, 1, 3, 1, 6, kCrc}},
      {"chunks whose sum wraps in 32 bits", between({0, 0, 1, 3, 2}, kMost, {kCrc, 6, kCrc})},
      {"the head ends in the checksum", {0, 0, 1, 3, 1, 5, 0, 0, 0}},
      {"the head ends in a scalar", {4, 0, 1, 3, 1, 0, 0}},
      {"a byte behind the last chunk", {0, 0, 1, 3, 1, 5, kCrc, 0}},
      {"a byte behind a bare one", {1, 0, 1, 0}, false, {}},
  };
}

// Of version 2: bit 5 of the first byte, and then the number of parts behind the first part's.
std::vector<SegmentRow> runs_of_parts() {
  return {
      {"as in version 1", {0, 0, 1, 3, 1, 5, kCrc}, true},
      {"2 parts", {32, 0, 2, 2, 1, 1, 5, kCrc}, true},
      {"2^32 - 1 parts", between({32, 0}, between(kMost, kMost, {1, 1, 5, kCrc}), {}), true},
      {"2^32 parts", between({32, 0, 0x80, 0x80, 0x80, 0x80, 16}, kMost, {1, 1, 5, kCrc})},
      {"parts in a longer form", {32, 0, 0x82, 0, 2, 1, 1, 5, kCrc}},
      {"1 part", {32, 0, 1, 1, 1, 1, 5, kCrc}},
      {"no parts", {32, 0, 0, 1, 1, 1, 5, kCrc}},
      {"an element less than parts", {32, 0, 3, 2, 1, 1, 5, kCrc}},
      {"parts that are not there", {32, 0, 2, 1, 1, 5, kCrc}},
      {"with a scalar", {36, 0, 2, 2, 1, 1, 0, 0, 0, 1, 5, kCrc}},
      {"with a begin", {48, 0, 2, 1, 2, 1, 1, 5, kCrc}},
      {"nothing", {33, 0, 2, 2}, false, {}},
      {"not finite", {34, 0, 2, 2}, false, {}},
      {"bit 6", {64, 0, 1, 3, 1, 5, kCrc}},
      {"bits 5 and 6", {96, 0, 2, 2, 1, 1, 5, kCrc}},
      {"bit 7", {128, 0, 1, 3, 1, 5, kCrc}},
  };
}

void expect_segments(const std::vector<SegmentRow>& rows, unsigned version = 1) {
  for (const SegmentRow& row : rows) {
    SCOPED_TRACE(row.name);
    HandMade made{.version = version, .segment = row.segment};
    for (const std::uint32_t bytes : row.chunks) made.payload += bytes;
    expect_code(testing::read_all(made.frame(row.chunks)),
                row.good ? std::nullopt : std::optional(ErrorCode::kCorrupt));
  }
}

TEST(FrameRules, FirstBytesOfSegments) {
  expect_segments(first_bytes());
}

TEST(FrameRules, NumbersOfSegments) {
  expect_segments(numbers());
}

TEST(FrameRules, RunsOfParts) {
  expect_segments(runs_of_parts(), 2);
}

TEST(FrameRules, Version1HasNoRunsOfParts) {
  expect_segments({{"2 parts", {32, 0, 2, 2, 1, 1, 5, kCrc}}, {"bit 5", {32, 0, 1, 3, 1, 5, kCrc}}});
}

TEST(FrameRules, ChunksOfSegments) {
  expect_segments(chunk_rows());
}

// The second segment is checked like the first, and bytes between two belong to neither.
TEST(FrameRules, LaterSegments) {
  const HandMade two{.segments = 2, .segment = {1, 0, 1, 2, 1, 1}};
  expect_code(testing::read_all(two.frame()), std::nullopt);
  for (std::vector<unsigned> bad : {std::vector<unsigned>{1, 0, 1, 3, 1, 1},
                                    {1, 0, 1, 2, 1, 0},
                                    {1, 0, 1, 0, 2, 1, 1},
                                    {1, 0, 1, 2, 1}}) {
    expect_code(testing::read_all(HandMade{.segments = 2, .segment = std::move(bad)}.frame()),
                ErrorCode::kCorrupt);
  }
}

}  // namespace
}  // namespace deltawire
