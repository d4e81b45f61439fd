#include "deltawire/frame.h"

#include <array>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/random.h"
#include "wire/frame_builder.h"
#include "wire/frame_layout.h"
#include "wire/frame_testing.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

using testing::bare_frame;
using testing::Frame;
using testing::read_all;
using testing::repair_crc;
using testing::small_frame;
using testing::some_header;

TEST(Frame, RoundTrip) {
  const Frame frame = small_frame();
  Result<FrameReader> reader = FrameReader::open(frame);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->frame_bytes(), frame.size());
  EXPECT_EQ(reader->header().params_hash, 0x1122334455667788u);
  EXPECT_EQ(reader->header().step, 7u);
  EXPECT_EQ(reader->header().slice, 9);
  EXPECT_EQ(reader->chunk_count(), 3u);
  ASSERT_EQ(reader->segments_left(), 2u);
  auto first = reader->next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->segment.first, 40960u);
  EXPECT_FALSE(first->segment.raw);
  EXPECT_EQ(first->part.scalar, 0x3F800000u);
  ASSERT_EQ(first->part.chunk_ends.size(), 2u);
  EXPECT_EQ(first->part.chunk_ends[0], 3u);
  EXPECT_EQ(first->part.chunk_ends[1], 5u);
  EXPECT_EQ(first->part.payload[4], static_cast<std::byte>(4 * 17));
  auto second = reader->next();
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->segment.raw);
  EXPECT_EQ(second->segment.tensor, 1u);
  EXPECT_EQ(second->part.payload.size(), 4u);
}

TEST(Frame, BareSegmentsHaveNoChunks) {
  for (const bool alone : {false, true}) {
    const Frame frame = bare_frame(alone);
    EXPECT_EQ(frame.size(), alone ? 64u + 2 * 16 : 64u + 4 * 16 + 2 * 8 + 6);
    Result<FrameReader> reader = FrameReader::open(frame);
    ASSERT_TRUE(reader) << reader.error().message;
    EXPECT_EQ(reader->frame_bytes(), frame.size());
    std::vector<SegmentState> states;
    while (reader->segments_left() > 0) {
      const auto view = reader->next();
      ASSERT_TRUE(view) << view.error().message;
      const bool coded = view->segment.state == SegmentState::kCoded;
      EXPECT_EQ(view->part.payload.size(), coded ? 3u : 0u);
      EXPECT_EQ(view->segment.tensor, states.size() + (alone ? 1 : 0));
      EXPECT_EQ(view->segment.raw, view->segment.tensor == 3);
      states.push_back(view->segment.state);
    }
    const std::size_t at = alone ? 0 : 1;
    ASSERT_EQ(states.size(), alone ? 2u : 4u);
    EXPECT_EQ(states[at], SegmentState::kNothing);
    EXPECT_EQ(states[at + 1], SegmentState::kNotFinite);
  }
}

TEST(Frame, HeadHasTheDocumentedLength) {
  EXPECT_EQ(small_frame().size(), 64u + 2 * 16 + 3 * 8 + 9);
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

TEST(Frame, SwappedEqualChunksAreDetected) {
  Frame payload(8, std::byte{1});
  for (std::size_t i = 4; i < 8; ++i) payload[i] = std::byte{2};
  FrameBuilder builder(some_header());
  const std::array<std::uint32_t, 2> ends{4, 8};
  builder.add_segment({0, false, 0, 10, 0}, payload, ends);
  Frame frame = builder.finish();
  const std::size_t head = frame.size();
  frame.insert(frame.end(), payload.begin() + 4, payload.end());
  frame.insert(frame.end(), payload.begin(), payload.begin() + 4);
  EXPECT_FALSE(read_all(frame));
  // Even with the index entries' checksums swapped along, the seed tells the chunks apart.
  std::swap_ranges(frame.begin() + static_cast<std::ptrdiff_t>(head) - 12,
                   frame.begin() + static_cast<std::ptrdiff_t>(head) - 8,
                   frame.begin() + static_cast<std::ptrdiff_t>(head) - 4);
  repair_crc(frame);
  EXPECT_FALSE(read_all(frame));
}

TEST(Frame, NewerVersionIsNamed) {
  Frame frame = small_frame();
  frame[frame_layout::kVersionAt] = std::byte{1};
  const auto reader = FrameReader::open(frame);
  ASSERT_FALSE(reader);
  EXPECT_EQ(reader.error().code, ErrorCode::kUnsupportedVersion);
}

// Every 32-bit number of header and index, with its checksum repaired, set to each nasty number: a value or
// an error, and never a read outside (the sanitizers watch).
TEST(Frame, NastyNumbersAreRefused) {
  constexpr std::array<std::uint32_t, 16> kNasty{
      0,          1,          2,          0x7F,       0x80,       0xFF,       0xFFFF,     0x10000,
      0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFF8, 0x10000000, 0x20000000};
  const Frame good = small_frame();
  const std::size_t head = 64 + 2 * 16 + 3 * 8;
  int accepted = 0;
  for (std::size_t at = 0; at + 4 <= head; at += 2) {
    for (const std::uint32_t value : kNasty) {
      Frame bad = good;
      store_le<std::uint32_t>(bad.data() + at, value);
      repair_crc(bad);
      accepted += read_all(bad) ? 1 : 0;
    }
  }
  // Fields without meaning to the frame itself (hashes, step, epoch, seq, slice, scalars) may hold anything.
  EXPECT_GT(accepted, 0);
}

TEST(Frame, RandomBytesAreSafe) {
  CounterRng rng(20261);
  for (int round = 0; round < 20000; ++round) {
    Frame bytes(64 + rng.next() % 200);
    for (auto& b : bytes) b = static_cast<std::byte>(rng.next());
    store_le<std::uint32_t>(bytes.data(), kFrameMagic);
    bytes[4] = bytes[5] = std::byte{0};
    const auto segments = static_cast<std::uint16_t>(1 + rng.next() % 3);
    const auto chunks = static_cast<std::uint32_t>(segments + rng.next() % 3);
    store_le<std::uint16_t>(bytes.data() + 54, segments);
    store_le<std::uint32_t>(bytes.data() + 56, chunks);
    store_le<std::uint32_t>(bytes.data() + 8, 64 + 16u * segments + 8 * chunks);
    repair_crc(bytes);
    (void)read_all(bytes);
  }
}

TEST(Hashes, ParamsHashDependsOnSpecAndPolicy) {
  EXPECT_NE(params_hash("fp32", Policy{256}), params_hash("fp32", Policy{0}));
  EXPECT_NE(params_hash("fp32", Policy{256}), params_hash("bf16", Policy{256}));
  EXPECT_NE(params_hash("fp32", Policy{256}), params_hash("fp32", Policy{256, NonFinite::kPass}));
}

TEST(Hashes, SpecHashDependsOnEverythingButTheValues) {
  float a = 1;
  float b = 2;
  const Named base{"w", {&a, 1, DType::kF32}, 0};
  const auto hash = [](const Named& part) { return spec_hash(std::span(&part, 1)); };
  EXPECT_EQ(hash(base), hash({"w", {&b, 1, DType::kF32}, 0}));
  EXPECT_NE(hash(base), hash({"v", {&a, 1, DType::kF32}, 0}));
  EXPECT_NE(hash(base), hash({"w", {&a, 2, DType::kF32}, 0}));
  EXPECT_NE(hash(base), hash({"w", {&a, 1, DType::kBF16}, 0}));
  EXPECT_NE(hash(base), hash({"w", {&a, 1, DType::kF32}, 1}));
  EXPECT_EQ(hash(base), spec_hash(std::span(&base, 1), 1.0F));
  EXPECT_NE(hash(base), spec_hash(std::span(&base, 1), 2.0F));
  for (const float scale : {1.0F, 65536.0F, 0x1p-149F, 0x1p127F}) {
    EXPECT_EQ(scale_of_hash(std::span(&base, 1), spec_hash(std::span(&base, 1), scale)), scale);
  }
  EXPECT_EQ(scale_of_hash(std::span(&base, 1), spec_hash(std::span(&base, 1), 3.0F)), std::nullopt);
}

}  // namespace
}  // namespace deltawire
