// docs/reference/format.md, sections 3 and 5: where each field is, and how long it is.
#include <array>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "wire/frame_testing.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

using testing::Frame;

// Each segment has its own payload and chunk ends, which count from its beginning.
TEST(FrameRules, ASegmentSeesOnlyItsChunks) {
  const Frame frame = testing::small_frame();
  Result<FrameReader> reader = FrameReader::open(frame);
  ASSERT_TRUE(reader) << reader.error().message;
  const auto first = reader->next();
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->part.payload.data(), frame.data() + reader->head_bytes());
  EXPECT_EQ(first->part.payload.size(), 5u);
  EXPECT_EQ(std::vector(first->part.chunk_ends.begin(), first->part.chunk_ends.end()),
            (std::vector<std::uint32_t>{3, 5}));
  EXPECT_EQ(reader->segments_left(), 1u);
  const auto second = reader->next();
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->part.payload.data(), frame.data() + reader->head_bytes() + 5);
  EXPECT_EQ(second->part.payload.size(), 4u);
  EXPECT_EQ(std::vector(second->part.chunk_ends.begin(), second->part.chunk_ends.end()),
            (std::vector<std::uint32_t>{4}));
  EXPECT_EQ(reader->segments_left(), 0u);
}

constexpr unsigned kAny = 256;  // checked in another way

// Every field is at the offset that the page gives.
TEST(FrameRules, FieldsAreWhereThePageSays) {
  const FrameHeader header{
      .message = {.step = 300, .rank = 4, .world = 5, .bucket = 129, .stage = 6, .scale = 2},
      .params_hash = 0x14131211u,
      .layout_hash = 0x24232221u,
      .seq = 7};
  const Frame payload(2, std::byte{1});
  Frame head;
  FrameBuilder builder(header, head);
  const std::array<std::uint32_t, 2> two{1, 2};
  const Segment segment{
      .part = 8, .begin = 9, .count = 200, .codec = 11, .scalar = 0x34333231, .scalar2 = 0x44434241};
  builder.add_segment(segment, payload, two);
  EXPECT_EQ(builder.finish(), head.size());
  const std::vector<unsigned> wanted{
      'D',  'W',  'W',  'F',  1,    2,    1,    0,    65,   0,    0,    0,    67,   0,    0,
      0,    kAny, kAny, kAny, kAny,                                                           // to 20
      0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0,    0,    0,    0x40,                 // to 32
      0xAC, 2,    0x81, 1,    6,    7,    4,    5,                                            // to 40
      24,   8,    9,    0xC8, 1,    11,   0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44, 2,  // to 55
      1,    kAny, kAny, kAny, kAny, 1,    kAny, kAny, kAny, kAny};
  EXPECT_EQ(wanted.size(), head.size());
  for (std::size_t i = 0; i < wanted.size() && i < head.size(); ++i) {
    if (wanted[i] == kAny) continue;
    EXPECT_EQ(std::to_integer<unsigned>(head[i]), wanted[i]) << "byte " << i;
  }
  EXPECT_EQ(load_le<std::uint32_t>(head.data() + 56), crc32c(Bytes(payload).first(1), 0));
  EXPECT_EQ(load_le<std::uint32_t>(head.data() + 61), crc32c(Bytes(payload).first(1), 1));
  EXPECT_EQ(load_le<std::uint32_t>(head.data() + 16),
            crc32c(Bytes(head).subspan(20), crc32c(Bytes(head).first(16))));

  Frame frame = head;
  frame.insert(frame.end(), payload.begin(), payload.end());
  Result<FrameReader> reader = FrameReader::open(frame);
  ASSERT_TRUE(reader) << reader.error().message;
  const FrameHeader& read = reader->header();
  EXPECT_EQ(read.params_hash, header.params_hash);
  EXPECT_EQ(read.layout_hash, header.layout_hash);
  EXPECT_EQ(read.message.step, header.message.step);
  EXPECT_EQ(read.message.bucket, header.message.bucket);
  EXPECT_EQ(read.message.stage, header.message.stage);
  EXPECT_EQ(read.seq, header.seq);
  EXPECT_EQ(read.message.rank, header.message.rank);
  EXPECT_EQ(read.message.world, header.message.world);
  EXPECT_EQ(read.message.scale, header.message.scale);
  const auto view = reader->next();
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_EQ(view->segment.part, segment.part);
  EXPECT_EQ(view->segment.begin, segment.begin);
  EXPECT_EQ(view->segment.count, segment.count);
  EXPECT_EQ(view->segment.codec, segment.codec);
  EXPECT_EQ(view->segment.scalar, segment.scalar);
  EXPECT_EQ(view->segment.scalar2, segment.scalar2);
  EXPECT_EQ(view->part.payload.size(), 2u);
}

// The bounds that determine the size of receive buffers.
TEST(FrameRules, NothingIsLongerThanItsBound) {
  Frame head;
  FrameBuilder builder(
      {.message =
           {.step = UINT64_MAX, .rank = 65534, .world = 65535, .bucket = 65535, .stage = 65535, .scale = 2},
       .seq = UINT32_MAX},
      head);
  EXPECT_EQ(builder.finish(), kFrameHeaderBytesMax);
  const Frame payload(1);
  const std::array<std::uint32_t, 1> one{1};
  builder.add_segment({.part = UINT32_MAX,
                       .begin = UINT32_MAX,
                       .count = UINT32_MAX,
                       .codec = 65535,
                       .scalar = 1,
                       .scalar2 = 1},
                      payload, one);
  EXPECT_LE(builder.finish(), kFrameHeaderBytesMax + kSegmentBytesMax + kChunkEntryBytesMax);
}

// The hashes of section 5, on which two builds must agree: these numbers were computed from the page, by the
// decoder in tests/decoder.
TEST(FrameRules, HashesAreWhatThePageSays) {
  EXPECT_EQ(params_hash("3lc:s=1.75,mode=auto,runs=on", Policy{256}), 0x79786A7FE9E8BBD8u);
  // Never read: hashes are of names and shapes.
  float value = 0;
  std::array<std::uint32_t, 2> keys{4, 9};
  const std::array<Named, 2> dense{Named{"w", {&value, 1000, DType::kF32}, 0},
                                   Named{"b", {&value, 5'000'000'000, DType::kF32}, 320}};
  EXPECT_EQ(layout_hash(dense), 0x60EF285Fu);
  const std::array<Named, 2> pairs{Named{"w", {&value, 2, DType::kF32, keys.data(), 1000}, 0}, dense[1]};
  EXPECT_EQ(layout_hash(pairs), 0x60EF285Fu) << "of the elements, not of the pairs";
  const std::array<std::uint64_t, 2> dims{20, 50};
  std::array<Named, 2> shaped = dense;
  shaped[0].tensor.dims = dims;
  shaped[1].elements_of_whole = 6'000'000'000;
  shaped[1].dims_of_whole = 3;
  EXPECT_EQ(layout_hash(shaped), 0x19034996u);
  // The page's example: a whole tensor, and its second half.
  const std::array<std::uint64_t, 2> matrix{25, 40};
  std::array<Named, 1> part{Named{"w", {&value, 1000, DType::kF32}, 0}};
  part[0].tensor.dims = matrix;
  EXPECT_EQ(layout_hash(part), 0xFDC5381Fu);
  part[0] = Named{"w", {&value, 500, DType::kF32}, 500};
  part[0].elements_of_whole = 1000;
  part[0].dims_of_whole = 2;
  EXPECT_EQ(layout_hash(part), 0x3B25429Cu);
  const std::string text = "abc";
  EXPECT_EQ(digest64(std::as_bytes(std::span(text)), 7), 0x9E755206156676D7u);
}

}  // namespace
}  // namespace deltawire
