// docs/format.md, section 3, rule by rule: each is broken behind a good checksum, so that the rule itself has
// to refuse, with the error that the page names; and next to each limit stands what is still allowed.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "wire/frame_testing.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

using namespace frame_layout;
using testing::Frame;

// Of small_frame: segments of 2 and 1 chunks, chunks of 3, 2 and 4 bytes.
constexpr std::size_t kHead = 64 + 2 * 16 + 3 * 8;
constexpr std::size_t kBytes = kHead + 9;

std::size_t segment_at(std::size_t segment) {
  return kFrameHeaderBytes + kSegmentBytes * segment;
}

std::size_t entry_at(std::size_t chunk) {
  return segment_at(2) + kChunkEntryBytes * chunk;
}

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

// The ends of the three chunks, with their bits 31.
Change ends(std::uint32_t first, std::uint32_t second, std::uint32_t third) {
  return [=](Frame& frame) {
    u32(entry_at(0), first)(frame);
    u32(entry_at(1), second)(frame);
    u32(entry_at(2), third)(frame);
  };
}

Change both(Change one, Change other) {
  return [=](Frame& frame) {
    one(frame);
    other(frame);
  };
}

// After the header's checksum has been repaired.
Change cut_to(std::size_t bytes) {
  return [=](Frame& frame) { frame.resize(bytes); };
}

// A frame that is all header: `segments` empty ones and `chunks` entries, none of which can be right.
Change counts(unsigned segments, std::uint32_t chunks) {
  return [=](Frame& frame) {
    frame.assign(kFrameHeaderBytes + kSegmentBytes * segments + kChunkEntryBytes * chunks, std::byte{0});
    const Frame good = testing::small_frame();
    std::copy(good.begin(), good.begin() + kFrameHeaderBytes, frame.begin());
    u32(kHeaderBytesAt, frame.size())(frame);
    u32(kFrameBytesAt, frame.size())(frame);
    u16(kSegmentsAt, segments)(frame);
    u32(kChunksAt, chunks)(frame);
    if (segments > 0) u32(segment_at(0) + kCountAt, 1)(frame);
  };
}

// A payload that claims to make the frame so long.
Change frame_of(std::uint64_t bytes) {
  return both(u32(kFrameBytesAt, bytes),
              u32(entry_at(2), kTopBit | static_cast<std::uint32_t>(bytes - kHead)));
}

Change nothing() {
  return [](Frame&) {};
}

struct Rule {
  std::string name;
  Change change;                   // then the header's checksum is repaired
  std::optional<ErrorCode> error;  // none: a good frame
  Change after = nothing();        // with the checksum as it is
};

std::vector<Rule> start_rules() {
  return {
      {"as it was", nothing(), std::nullopt},
      {"63 bytes", nothing(), ErrorCode::kTruncated, cut_to(63)},
      {"no bytes", nothing(), ErrorCode::kTruncated, cut_to(0)},
      {"magic above", u8(3, 0x47), ErrorCode::kCorrupt},
      {"magic below", u8(3, 0x45), ErrorCode::kCorrupt},
      {"version 1", u8(kVersionAt, 1), ErrorCode::kUnsupportedVersion},
      {"version 255", u8(kVersionAt, 255), ErrorCode::kUnsupportedVersion},
      {"header_bytes 8 less", u32(kHeaderBytesAt, kHead - 8), ErrorCode::kCorrupt},
      {"header_bytes 8 more", u32(kHeaderBytesAt, kHead + 8), ErrorCode::kCorrupt},
      {"header_bytes 0", u32(kHeaderBytesAt, 0), ErrorCode::kCorrupt},
      {"cut in the header", nothing(), ErrorCode::kTruncated, cut_to(kHead - 1)},
      {"the header alone", nothing(), ErrorCode::kTruncated, cut_to(kHead)},
      {"chunks beyond the bytes", both(u32(kChunksAt, 4), u32(kHeaderBytesAt, kHead + 8 + 8)),
       ErrorCode::kCorrupt},
      {"a header beyond the bytes", both(u32(kChunksAt, 5), u32(kHeaderBytesAt, kHead + 16)),
       ErrorCode::kTruncated},
      {"checksum", nothing(), ErrorCode::kCorrupt, u8(kCrcAt, 1)},
  };
}

std::vector<Rule> count_rules() {
  return {
      {"flag bit 0", u8(kFlagsAt, 1), ErrorCode::kCorrupt},
      {"flag bit 1", u8(kFlagsAt, 2), ErrorCode::kCorrupt},
      {"flag bit 7", u8(kFlagsAt, 128), ErrorCode::kCorrupt},
      {"neither segments nor chunks", counts(0, 0), ErrorCode::kCorrupt},
      {"no segments", counts(0, 1), ErrorCode::kCorrupt},
      {"no chunks", counts(1, 0), ErrorCode::kCorrupt},
      {"fewer chunks than segments", counts(2, 1), ErrorCode::kCorrupt},
      {"2^28 bytes", frame_of(kMaxFrameBytes), ErrorCode::kTruncated},
      {"2^28 + 1 bytes", frame_of(kMaxFrameBytes + 1), ErrorCode::kLimit},
      {"2^32 - 1 bytes", frame_of(UINT32_MAX), ErrorCode::kLimit},
      {"frame_bytes below the header", u32(kFrameBytesAt, kHead - 1), ErrorCode::kCorrupt},
      {"frame_bytes 1 less", u32(kFrameBytesAt, kBytes - 1), ErrorCode::kCorrupt},
      {"frame_bytes 1 more", u32(kFrameBytesAt, kBytes + 1), ErrorCode::kCorrupt},
      {"a payload cut short", nothing(), ErrorCode::kTruncated, cut_to(kBytes - 1)},
      {"rank equal to world", u16(kRankAt, 4), ErrorCode::kCorrupt},
      {"rank above world", u16(kRankAt, 5), ErrorCode::kCorrupt},
      {"no world", both(u16(kRankAt, 0), u16(kWorldAt, 0)), ErrorCode::kCorrupt},
      {"rank 0 of 1", both(u16(kRankAt, 0), u16(kWorldAt, 1)), std::nullopt},
      {"rank 65,534 of 65,535", both(u16(kRankAt, 65534), u16(kWorldAt, 65535)), std::nullopt},
  };
}

std::vector<Rule> index_rules() {
  constexpr std::uint32_t kLast = kTopBit;
  return {
      {"an empty first chunk", ends(0, kLast | 5, kLast | 9), ErrorCode::kCorrupt},
      {"an empty chunk", ends(5, kLast | 5, kLast | 9), ErrorCode::kCorrupt},
      {"an empty last chunk", ends(3, kLast | 9, kLast | 9), ErrorCode::kCorrupt},
      {"ends that shrink", ends(6, kLast | 5, kLast | 9), ErrorCode::kCorrupt},
      {"other ends, but growing", ends(1, kLast | 2, kLast | 9), ErrorCode::kCorrupt},  // by their checksums
      {"too few last chunks", ends(3, 5, kLast | 9), ErrorCode::kCorrupt},
      {"too many last chunks", ends(kLast | 3, kLast | 5, kLast | 9), ErrorCode::kCorrupt},
      {"the final chunk is no last one", ends(kLast | 3, kLast | 5, 9), ErrorCode::kCorrupt},
      {"another cut between the segments", ends(kLast | 3, 5, kLast | 9), std::nullopt},
      {"the last end before the payload's", ends(3, kLast | 5, kLast | 8), ErrorCode::kCorrupt},
      {"the last end behind the payload's", ends(3, kLast | 5, kLast | 10), ErrorCode::kCorrupt},
      {"the first segment without elements", u32(segment_at(0) + kCountAt, 0), ErrorCode::kCorrupt},
      {"the last segment without elements", u32(segment_at(1) + kCountAt, 0), ErrorCode::kCorrupt},
      {"up to 2^32 - 1",
       both(u32(segment_at(0) + kFirstAt, 0x80000000), u32(segment_at(0) + kCountAt, 0x7FFFFFFF)),
       std::nullopt},
      {"up to 2^32",
       both(u32(segment_at(0) + kFirstAt, 0x80000000), u32(segment_at(0) + kCountAt, 0x80000000)),
       ErrorCode::kCorrupt},
      {"up to 2^32 in the last",
       both(u32(segment_at(1) + kFirstAt, UINT32_MAX), u32(segment_at(1) + kCountAt, 1)),
       ErrorCode::kCorrupt},
      {"a chunk's checksum", u32(entry_at(0) + 4, 0), ErrorCode::kCorrupt},
      {"the last chunk's checksum", u32(entry_at(2) + 4, 0), ErrorCode::kCorrupt},
      {"a payload bit", nothing(), ErrorCode::kCorrupt, u8(kBytes - 1, 0)},
  };
}

// Two rules broken at once: the page's order says which is reported.
std::vector<Rule> order_rules() {
  const Change limit = frame_of(kMaxFrameBytes + 1);
  const Change empty_chunk = u32(entry_at(0), 0);
  return {
      {"magic before version", both(u8(0, 0), u8(kVersionAt, 1)), ErrorCode::kCorrupt},
      {"version before header_bytes", both(u8(kVersionAt, 1), u32(kHeaderBytesAt, 0)),
       ErrorCode::kUnsupportedVersion},
      {"header_bytes before its end", u32(kHeaderBytesAt, kHead + 24), ErrorCode::kCorrupt},
      {"header's end before checksum", nothing(), ErrorCode::kTruncated,
       both(u8(kCrcAt, 1), cut_to(kHead - 1))},
      {"checksum before limit", limit, ErrorCode::kCorrupt, u8(kCrcAt, 1)},
      {"flags before limit", both(limit, u8(kFlagsAt, 1)), ErrorCode::kCorrupt},
      {"counts before limit", both(counts(0, 0), u32(kFrameBytesAt, kMaxFrameBytes + 1)),
       ErrorCode::kCorrupt},
      {"limit before index", both(limit, empty_chunk), ErrorCode::kLimit},
      {"index before payload", empty_chunk, ErrorCode::kCorrupt, cut_to(kHead)},
      {"segments before payload", u32(segment_at(1) + kCountAt, 0), ErrorCode::kCorrupt, cut_to(kHead)},
      {"payload before rank", u16(kRankAt, 4), ErrorCode::kTruncated, cut_to(kHead)},
  };
}

// Of bare_frame(true): nothing, from 0; not finite, up to 2^32 - 1.
std::vector<Rule> bare_rules() {
  constexpr std::size_t kAll = 64 + 2 * 16;
  const std::size_t one = segment_at(0);
  const std::size_t other = segment_at(1);
  return {
      {"no chunks, no payload", nothing(), std::nullopt},
      {"the other state", u32(one + kScalarAt, kNotFiniteScalar), std::nullopt},
      {"state 2", u32(one + kScalarAt, 2), ErrorCode::kCorrupt},
      {"state 2 of the last", u32(other + kScalarAt, 2), ErrorCode::kCorrupt},
      {"state 256", u32(one + kScalarAt, 256), ErrorCode::kCorrupt},
      {"state 2^31", u32(one + kScalarAt, kTopBit), ErrorCode::kCorrupt},
      {"raw", u32(one, kTopBit | kBareBit | 1), ErrorCode::kCorrupt},
      {"the last raw", u32(other, kTopBit | kBareBit | 2), ErrorCode::kCorrupt},
      {"the greatest index", u32(one, kBareBit | (kBareBit - 1)), std::nullopt},
      {"coded without a chunk", u32(one, 1), ErrorCode::kCorrupt},
      {"without elements", u32(one + kCountAt, 0), ErrorCode::kCorrupt},
      {"up to 2^32", u32(other + kFirstAt, 321), ErrorCode::kCorrupt},
      {"frame_bytes 1 less", u32(kFrameBytesAt, kAll - 1), ErrorCode::kCorrupt},
      {"a byte of payload", u32(kFrameBytesAt, kAll + 1), ErrorCode::kCorrupt,
       [](Frame& frame) { frame.push_back(std::byte{0}); }},
      {"cut in the header", nothing(), ErrorCode::kTruncated, cut_to(kAll - 1)},
      {"limit before state", both(u32(kFrameBytesAt, kMaxFrameBytes + 1), u32(one + kScalarAt, 2)),
       ErrorCode::kLimit},
  };
}

// Of bare_frame(false): coded, nothing, not finite, raw; one chunk each that has any.
std::vector<Rule> mixed_rules() {
  constexpr std::size_t kMixedHead = 64 + 4 * 16 + 2 * 8;
  const auto coded = [](std::size_t segment) { return u32(segment_at(segment), segment); };
  const auto bare = [](std::size_t segment) {
    return both(u32(segment_at(segment), kBareBit | segment), u32(segment_at(segment) + kScalarAt, 0));
  };
  return {
      {"as it was", nothing(), std::nullopt},
      {"a chunk of a bare segment", bare(0), ErrorCode::kCorrupt},
      {"a chunk of a bare segment at the end", bare(3), ErrorCode::kCorrupt},
      {"coded without a chunk", coded(1), ErrorCode::kCorrupt},
      {"another one is bare", both(bare(0), coded(1)), std::nullopt},
      {"the last one is bare", both(bare(3), coded(2)), std::nullopt},
      {"state before payload", u32(segment_at(1) + kScalarAt, 2), ErrorCode::kCorrupt, cut_to(kMixedHead)},
      {"payload cut short", nothing(), ErrorCode::kTruncated, cut_to(kMixedHead)},
  };
}

void expect_rules(const std::vector<Rule>& rules, const Frame& good = testing::small_frame()) {
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.name);
    Frame frame = good;
    rule.change(frame);
    testing::repair_crc(frame);
    rule.after(frame);
    const Status read = testing::read_all(frame);
    if (rule.error) {
      ASSERT_FALSE(read) << "accepted";
      EXPECT_EQ(error_code_name(read.error().code), error_code_name(*rule.error)) << read.error().message;
    } else {
      EXPECT_TRUE(read) << read.error().message;
    }
  }
}

TEST(FrameRules, Start) {
  expect_rules(start_rules());
}

TEST(FrameRules, CountsAndLengths) {
  expect_rules(count_rules());
}

TEST(FrameRules, IndexAndSegments) {
  expect_rules(index_rules());
}

TEST(FrameRules, BareSegments) {
  expect_rules(bare_rules(), testing::bare_frame(true));
  expect_rules(mixed_rules(), testing::bare_frame(false));
}

TEST(FrameRules, OrderOfChecks) {
  expect_rules(order_rules());
}

// Each segment's own payload and ends, which count from its beginning.
TEST(FrameRules, ASegmentSeesItsChunksAlone) {
  const Frame frame = testing::small_frame();
  Result<FrameReader> reader = FrameReader::open(frame);
  ASSERT_TRUE(reader) << reader.error().message;
  const auto first = reader->next();
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->part.payload.data(), frame.data() + kHead);
  EXPECT_EQ(first->part.payload.size(), 5u);
  EXPECT_EQ(std::vector(first->part.chunk_ends.begin(), first->part.chunk_ends.end()),
            (std::vector<std::uint32_t>{3, 5}));
  EXPECT_EQ(reader->segments_left(), 1u);
  const auto second = reader->next();
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->part.payload.data(), frame.data() + kHead + 5);
  EXPECT_EQ(second->part.payload.size(), 4u);
  EXPECT_EQ(std::vector(second->part.chunk_ends.begin(), second->part.chunk_ends.end()),
            (std::vector<std::uint32_t>{4}));
  EXPECT_EQ(reader->segments_left(), 0u);
}

// A header of 64 bytes exactly has its own error: it is not too short to be read.
TEST(FrameRules, SixtyFourBytesAreAHeader) {
  Frame frame = testing::small_frame();
  frame.resize(kFrameHeaderBytes);
  frame[0] = std::byte{0};
  EXPECT_EQ(testing::read_all(frame).error().code, ErrorCode::kCorrupt);
}

// Every field of the header at the offset that the page gives, and nothing else there.
TEST(FrameRules, FieldsStandWhereThePageSays) {
  FrameHeader header;
  header.codec = 0x0201;
  header.params_hash = 0x1817161514131211u;
  header.spec_hash = 0x2827262524232221u;
  header.step = 0x3837363534333231u;
  header.epoch = 0x44434241u;
  header.seq = 0x54535251u;
  header.rank = 0x6261;
  header.world = 0x7271;
  header.slice = 0x8281;
  const Frame payload(2, std::byte{1});
  FrameBuilder builder(header);
  const std::array<std::uint32_t, 2> two{1, 2};
  builder.add_segment({0x14131211, true, 0x24232221, 0x34333231, 0x44434241}, payload, two);
  const Frame head = builder.finish();
  const std::vector<unsigned> wanted{'D',  'W',  'W',  'F',  0,    0,    0x01, 0x02, 96,   0,    0,    0,
                                     98,   0,    0,    0,    0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
                                     0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34,
                                     0x35, 0x36, 0x37, 0x38, 0x41, 0x42, 0x43, 0x44, 0x51, 0x52, 0x53, 0x54,
                                     0x61, 0x62, 0x71, 0x72, 0x81, 0x82, 1,    0,    2,    0,    0,    0};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(std::to_integer<unsigned>(head[i]), wanted[i]) << "byte " << i;
  }
  const std::vector<unsigned> segment{0x11, 0x12, 0x13, 0x94, 0x21, 0x22, 0x23, 0x24,
                                      0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44};
  for (std::size_t i = 0; i < segment.size(); ++i) {
    EXPECT_EQ(std::to_integer<unsigned>(head[64 + i]), segment[i]) << "byte " << 64 + i;
  }
  EXPECT_EQ(load_le<std::uint32_t>(head.data() + 80), 1u);
  EXPECT_EQ(load_le<std::uint32_t>(head.data() + 88), kTopBit | 2u);

  Frame frame = head;
  frame.insert(frame.end(), payload.begin(), payload.end());
  Result<FrameReader> reader = FrameReader::open(frame);
  ASSERT_TRUE(reader) << reader.error().message;
  const FrameHeader& read = reader->header();
  EXPECT_EQ(read.codec, header.codec);
  EXPECT_EQ(read.params_hash, header.params_hash);
  EXPECT_EQ(read.spec_hash, header.spec_hash);
  EXPECT_EQ(read.step, header.step);
  EXPECT_EQ(read.epoch, header.epoch);
  EXPECT_EQ(read.seq, header.seq);
  EXPECT_EQ(read.rank, header.rank);
  EXPECT_EQ(read.world, header.world);
  EXPECT_EQ(read.slice, header.slice);
  const auto view = reader->next();
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_EQ(view->segment.tensor, 0x14131211u);
  EXPECT_TRUE(view->segment.raw);
  EXPECT_EQ(view->segment.first, 0x24232221u);
  EXPECT_EQ(view->segment.count, 0x34333231u);
  EXPECT_EQ(view->segment.scalar, 0x44434241u);
  EXPECT_EQ(view->part.payload.size(), 2u);
}

// The hashes of section 5, which two builds must agree on: these numbers were computed from the page alone,
// by the decoder in tests/decoder.
TEST(FrameRules, HashesAreWhatThePageSays) {
  EXPECT_EQ(params_hash("3lc:s=1.75,mode=auto,runs=on", Policy{256}), 0x79786A7FE9E8BBD8u);
  // Never read: hashes are of names and shapes.
  float value = 0;
  std::array<std::uint32_t, 2> keys{4, 9};
  const std::array<Named, 2> dense{Named{"w", {&value, 1000, DType::kF32}, 0},
                                   Named{"b", {&value, 5'000'000'000, DType::kF32}, 320}};
  EXPECT_EQ(spec_hash(dense), 0x01D65871440BF792u);
  const std::array<Named, 2> pairs{Named{"w", {&value, 2, DType::kF32, keys.data(), 1000}, 0}, dense[1]};
  EXPECT_EQ(spec_hash(pairs), 0x01D65871440BF792u) << "of the elements, not of the pairs";
  const std::string text = "abc";
  EXPECT_EQ(digest64(std::as_bytes(std::span(text)), 7), 0x9E755206156676D7u);
}

}  // namespace
}  // namespace deltawire
