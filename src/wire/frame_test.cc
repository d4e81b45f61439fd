#include "deltawire/frame.h"

#include <array>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/random.h"
#include "base/refusal_testing.h"
#include "wire/frame_builder.h"
#include "wire/frame_layout.h"
#include "wire/frame_testing.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

using namespace testing;

TEST(Frame, RoundTrip) {
  const Frame frame = small_frame();
  Result<FrameReader> reader = FrameReader::open(frame);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->frame_bytes(), frame.size());
  EXPECT_EQ(reader->header().params_hash, 0x55667788u);
  EXPECT_EQ(reader->header().message.step, 7u);
  EXPECT_EQ(reader->header().message.stage, 2u);
  EXPECT_EQ(reader->segment_count(), 2u);
  ASSERT_EQ(reader->segments_left(), 2u);
  auto first = reader->next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->segment.begin, 40960u);
  EXPECT_EQ(first->segment.codec, 3u);
  EXPECT_EQ(first->part.scalar, 0x3F800000u);
  ASSERT_EQ(first->part.chunk_ends.size(), 2u);
  EXPECT_EQ(first->part.chunk_ends[0], 3u);
  EXPECT_EQ(first->part.chunk_ends[1], 5u);
  EXPECT_EQ(first->part.payload[4], static_cast<std::byte>(4 * 17));
  auto second = reader->next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->segment.codec, 1u);
  EXPECT_EQ(second->segment.part, 1u);
  EXPECT_EQ(second->part.payload.size(), 4u);
  EXPECT_EQ(reader->segments_left(), 0u);
}

// Each segment has its own codec and its own scalars, of which those that are 0 at the end don't travel.
TEST(Frame, CodecsAndScalarsBelongToTheSegment) {
  const Frame payload(4, std::byte{7});
  const std::array<std::uint32_t, 1> one{1};
  const std::array<std::array<std::uint32_t, 2>, 4> scalars{{{0, 0}, {5, 0}, {5, 6}, {0, 6}}};
  Frame frame;
  FrameBuilder builder(some_header(), frame);
  const std::uint64_t before = frame.size();
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto codec = static_cast<std::uint16_t>(65535 - i);
    builder.add_segment(
        {.part = i, .count = 1, .codec = codec, .scalar = scalars[i][0], .scalar2 = scalars[i][1]},
        Bytes(payload).subspan(i, 1), one);
  }
  builder.finish();
  EXPECT_EQ(frame.size(), before + 4 * (3 + 3 + 1 + 5) + 4 * (0 + 1 + 2 + 2));
  frame.insert(frame.end(), payload.begin(), payload.end());
  Result<FrameReader> reader = FrameReader::open(frame);
  ASSERT_TRUE(reader) << reader.error().message;
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto view = reader->next();
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(view->segment.codec, 65535 - i);
    EXPECT_EQ(view->segment.scalar, scalars[i][0]);
    EXPECT_EQ(view->segment.scalar2, scalars[i][1]);
    EXPECT_EQ(view->part.scalar, scalars[i][0]);
    EXPECT_EQ(view->part.scalar2, scalars[i][1]);
  }
}

TEST(Frame, SaysTheLowestVersionThatHasWhatItSays) {
  const Frame payload(4, std::byte{9});
  const std::array<std::uint32_t, 1> ends{4};
  const auto made = [&](const Segment& segment, bool needs_version_2) {
    Frame frame;
    FrameBuilder builder(testing::some_header(), frame);
    if (needs_version_2) builder.need_version(2);
    builder.add_segment(segment, payload, ends);
    builder.finish();
    frame.insert(frame.end(), payload.begin(), payload.end());
    return frame;
  };
  struct Row {
    Segment segment;
    bool needs_version_2;
    std::uint8_t version;
  };
  for (const Row& row :
       {Row{{.part = 4, .count = 9, .codec = 1}, false, 1}, Row{{.part = 4, .count = 9, .codec = 1}, true, 2},
        Row{{.part = 4, .count = 9, .codec = 1, .parts = 3}, false, 2}}) {
    const Frame frame = made(row.segment, row.needs_version_2);
    auto reader = FrameReader::open(frame);
    ASSERT_TRUE(reader) << reader.error().message;
    EXPECT_EQ(reader->version(), row.version);
    const auto read = reader->next();
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->segment.part, 4U);
    EXPECT_EQ(read->segment.parts, row.segment.parts);
    EXPECT_EQ(read->segment.count, 9U);
  }
}

TEST(Frame, BareSegmentsHaveNoChunks) {
  constexpr std::size_t kHeaderBytes = 34;
  constexpr std::size_t kBare = 2 + 3 + 2 + 5;
  for (const bool alone : {false, true}) {
    const Frame frame = bare_frame(alone);
    EXPECT_EQ(frame.size(), kHeaderBytes + kBare + (alone ? 0 : 9 + 5 + 5 + 5 + 6));
    Result<FrameReader> reader = FrameReader::open(frame);
    ASSERT_TRUE(reader) << reader.error().message;
    EXPECT_EQ(reader->header_bytes(), kHeaderBytes);
    EXPECT_EQ(reader->head_bytes(), frame.size() - (alone ? 0 : 6));
    EXPECT_EQ(reader->frame_bytes(), frame.size());
    std::vector<SegmentState> states;
    while (reader->segments_left() > 0) {
      const auto view = reader->next();
      ASSERT_TRUE(view) << view.error().message;
      const bool coded = view->segment.state == SegmentState::kCoded;
      EXPECT_EQ(view->part.payload.size(), coded ? 3u : 0u);
      EXPECT_EQ(view->segment.part, states.size() + (alone ? 1 : 0));
      EXPECT_EQ(view->segment.codec != 0, coded);
      states.push_back(view->segment.state);
    }
    const std::size_t at = alone ? 0 : 1;
    ASSERT_EQ(states.size(), alone ? 2u : 4u);
    EXPECT_EQ(states[at], SegmentState::kNothing);
    EXPECT_EQ(states[at + 1], SegmentState::kNotFinite);
  }
}

TEST(Frame, EveryBitFlipIsDetected) {
  for (const Frame& good : {small_frame(), bare_frame(false), bare_frame(true)}) {
    ASSERT_TRUE(read_all(good));
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      Frame bad = good;
      bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      EXPECT_FALSE(read_all(bad)) << "bit " << bit;
    }
  }
}

TEST(Frame, EveryTruncationIsDetected) {
  const Frame good = small_frame();
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(read_all(Bytes(good).first(bytes))) << bytes;
  }
  Frame longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(read_all(longer));
}

TEST(Frame, APayloadMayLieElsewhereThanItsHead) {
  const Frame good = small_frame();
  const Bytes bytes(good);
  const std::size_t head = good.size() - 9;
  const Frame head_alone(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(head));
  Result<FrameReader> reader = FrameReader::open(head_alone, bytes.subspan(head));
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->frame_bytes(), good.size());
  EXPECT_EQ(reader->head_bytes(), head);
  EXPECT_TRUE(reader->next());
  EXPECT_TRUE(reader->next());
  // Cut anywhere else it is no frame, nor with a byte too few or too many.
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    if (cut == head) continue;
    EXPECT_FALSE(FrameReader::open(bytes.first(cut), bytes.subspan(cut))) << cut;
  }
  EXPECT_FALSE(FrameReader::open(head_alone, bytes.subspan(head, 8)));
  EXPECT_FALSE(FrameReader::open(head_alone, bytes.subspan(head - 1)));
}

TEST(Frame, AHeadApartFromItsPayloadFollowsTheRules) {
  const auto opened = [](unsigned codec) {
    const HandMade made{.segment = {0, 0, 1, codec, 1, 1, HandMade::kCrc}, .payload = 1};
    const Frame frame = made.frame({1});
    return FrameReader::open(Bytes(frame).first(frame.size() - 1), Bytes(frame).last(1)).has_value();
  };
  EXPECT_TRUE(opened(1));
  EXPECT_FALSE(opened(0)) << "no codec has this id";
}

TEST(Frame, HashesAndNumbersThatNobodySetAreZeros) {
  Frame frame;
  FrameBuilder builder({.message = {.world = 2}}, frame);
  builder.add_bare({.count = 1, .state = SegmentState::kNothing});
  builder.finish();
  const Result<FrameReader> reader = FrameReader::open(frame);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->header().params_hash, 0u);
  EXPECT_EQ(reader->header().layout_hash, 0u);
  EXPECT_EQ(reader->header().seq, 0u);
}

TEST(Frame, ChecksumsMayBeKnownAlready) {
  Frame payload(9000);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * i % 251);
  const std::array<std::uint32_t, 3> ends{4000, 4001, 9000};
  std::array<std::uint32_t, 3> sums{};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::uint32_t begin = i == 0 ? 0 : ends[i - 1];
    sums[i] = crc32c(Bytes(payload).subspan(begin, ends[i] - begin));
  }
  Frame frames[2];
  for (std::size_t i = 0; i < 2; ++i) {
    FrameBuilder builder(some_header(), frames[i]);
    const Segment segment{.part = 0, .count = 10, .codec = 3};
    const std::span<const std::uint32_t> known(sums);
    builder.add_segment(segment, payload, ends, 0, i == 0 ? known.first(0) : known);
    builder.finish();
  }
  EXPECT_EQ(frames[0], frames[1]);
}

TEST(Frame, SwappedEqualChunksAreDetected) {
  Frame payload(8, std::byte{1});
  for (std::size_t i = 4; i < 8; ++i) payload[i] = std::byte{2};
  Frame frame;
  FrameBuilder builder(some_header(), frame);
  const std::array<std::uint32_t, 2> ends{4, 8};
  builder.add_segment({.part = 0, .count = 10, .codec = 3}, payload, ends);
  builder.finish();
  const std::size_t head = frame.size();
  frame.insert(frame.end(), payload.begin() + 4, payload.end());
  frame.insert(frame.end(), payload.begin(), payload.begin() + 4);
  EXPECT_FALSE(read_all(frame));
  // Even with the chunks' checksums swapped along, the seed tells the chunks apart.
  std::swap_ranges(frame.begin() + static_cast<std::ptrdiff_t>(head) - 9,
                   frame.begin() + static_cast<std::ptrdiff_t>(head) - 5,
                   frame.begin() + static_cast<std::ptrdiff_t>(head) - 4);
  repair_crc(frame);
  EXPECT_FALSE(read_all(frame));
}

TEST(Frame, AnotherVersionIsNamed) {
  Frame frame = small_frame();
  frame[frame_layout::kVersionAt] = std::byte{5};
  const auto newer = FrameReader::open(frame);
  testing::expect_refused(newer, ErrorCode::kUnsupportedVersion);
  EXPECT_EQ(newer.error().message,
            "frame: format 5, but this build reads format 1 to 4; use a newer version of deltawire");
  frame[frame_layout::kVersionAt] = std::byte{0};
  testing::expect_refused(FrameReader::open(frame), ErrorCode::kUnsupportedVersion,
                          "use the version of deltawire that wrote it");
}

// Every byte of the head, with its checksum repaired, set to every value: a value or an error, and never a
// read outside (the sanitizers watch).
TEST(Frame, EveryByteOfTheHeadMayBeAnything) {
  for (const Frame& good : {small_frame(), bare_frame(false), bare_frame(true)}) {
    const auto reader = FrameReader::open(good);
    ASSERT_TRUE(reader);
    int accepted = 0;
    for (std::size_t at = 0; at < reader->head_bytes(); ++at) {
      for (unsigned value = 0; value < 256; ++value) {
        Frame bad = good;
        bad[at] = static_cast<std::byte>(value);
        repair_crc(bad);
        accepted += read_all(bad) ? 1 : 0;
      }
    }
    // Fields without meaning to the frame itself (hashes, step, bucket, seq, codec, scalars) may hold
    // anything.
    EXPECT_GT(accepted, 0);
  }
}

TEST(Frame, RandomBytesAreSafe) {
  CounterRng rng(20261);
  int opened = 0;
  for (int round = 0; round < 20000; ++round) {
    testing::HandMade made;
    made.segments = static_cast<unsigned>(1 + rng.next() % 3);
    made.payload = rng.next() % 8;
    made.flags = rng.next() % 8 == 0 ? 2 : 0;
    // Mostly small numbers, so that some heads are legal.
    for (std::uint64_t i = 5 + rng.next() % 60; i > 0; --i) {
      made.segment.push_back(static_cast<unsigned>(rng.next() % (rng.next() % 4 == 0 ? 257 : 3)));
    }
    const Frame frame = made.frame();
    opened += FrameReader::open(frame) ? 1 : 0;
    (void)read_all(frame);
  }
  EXPECT_GT(opened, 0);
}

TEST(Hashes, ParamsHashDependsOnSpecAndPolicy) {
  EXPECT_NE(params_hash("fp32", Policy{256}), params_hash("fp32", Policy{0}));
  EXPECT_NE(params_hash("fp32", Policy{256}), params_hash("bf16", Policy{256}));
  EXPECT_NE(params_hash("fp32", Policy{256}), params_hash("fp32", Policy{256, NonFinite::kPass}));
}

TEST(Hashes, LayoutHashDependsOnEverythingButTheValues) {
  float a = 1;
  float b = 2;
  const Named base{"w", {&a, 1, DType::kF32}, 0};
  const auto hash = [](const Named& part) { return layout_hash(std::span(&part, 1)); };
  EXPECT_EQ(hash(base), hash({"w", {&b, 1, DType::kF32}, 0}));
  EXPECT_NE(hash(base), hash({"v", {&a, 1, DType::kF32}, 0}));
  EXPECT_NE(hash(base), hash({"w", {&a, 2, DType::kF32}, 0}));
  EXPECT_NE(hash(base), hash({"w", {&a, 1, DType::kBF16}, 0}));
  EXPECT_NE(hash(base), hash({"w", {&a, 1, DType::kF32}, 1}));
}

}  // namespace
}  // namespace deltawire
