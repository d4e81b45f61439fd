// zstd: frames made by hand, good ones and bad ones. What it shares with zlib: plane_codec_test.cc.
#include <gtest/gtest.h>

#include "codecs/codec_testing.h"

namespace deltawire::zstd_test {
namespace {

using namespace testing;

const testing::Expects kExpects{{
    .codec = "zstd",
    .error_bound = [](const testing::EncodedValue&) { return 0.0; },
}};

// 16 values of the bytes `value`: a frame of one block, a byte that is repeated.
Ints frame(int descriptor, const Ints& header, const Ints& block) {
  Ints bytes = {1, 0x28, 0xB5, 0x2F, 0xFD, descriptor};
  bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.insert(bytes.end(), block.begin(), block.end());
  return bytes;
}

const Ints kBlock = {0x03, 0x02, 0, 0};  // the last, repeats, 64 bytes of 0

ErrorCode verdict(const Ints& bytes, std::uint64_t count = 16) {
  return testing::verdict_of("zstd", one_chunk(bytes, 0), count);
}

TEST(Zstd, DecodesAFrameMadeByHand) {
  const auto part = one_chunk(frame(0x20, {64}, {0x03, 0x02, 0, 0x3F}), 0);
  const auto back = testing::decode(*codec_of("zstd"), part.view(), 16);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(testing::bits_of(back->at(15)), 0x3F3F3F3FU);
}

TEST(ZstdRefusals, Headers) {
  EXPECT_EQ(verdict(frame(0x20, {64}, kBlock)), kAccepted);
  EXPECT_EQ(verdict(frame(0x20, {64}, kBlock), 15), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(frame(0x20, {60}, kBlock)), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(frame(0x21, {7, 64}, kBlock)), ErrorCode::kCorrupt) << "a dictionary";
  EXPECT_EQ(verdict(frame(0x28, {64}, kBlock)), ErrorCode::kCorrupt) << "a reserved bit";
  Ints summed = frame(0x24, {64}, kBlock);
  summed.insert(summed.end(), {1, 2, 3, 4});
  EXPECT_EQ(verdict(summed), ErrorCode::kCorrupt) << "a checksum";
  EXPECT_EQ(verdict(frame(0x00, {0}, kBlock)), ErrorCode::kCorrupt) << "no size";
  Ints other = frame(0x20, {64}, kBlock);
  other[1] = 0x27;
  EXPECT_EQ(verdict(other), ErrorCode::kCorrupt) << "another magic number";
  EXPECT_EQ(verdict({1, 0x50, 0x2A, 0x4D, 0x18, 64, 0, 0, 0, 0}), ErrorCode::kCorrupt) << "a skippable frame";
}

// A window of its own, with the size in four bytes: 2^18 at most.
TEST(ZstdRefusals, Windows) {
  EXPECT_EQ(verdict(frame(0x80, {0x40, 64, 0, 0, 0}, kBlock)), kAccepted);
  EXPECT_EQ(verdict(frame(0x80, {0x41, 64, 0, 0, 0}, kBlock)), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(frame(0x80, {0xA0, 64, 0, 0, 0}, kBlock)), ErrorCode::kCorrupt);
}

TEST(ZstdRefusals, WhatStandsBehindTheFrame) {
  Ints two = frame(0x20, {64}, kBlock);
  two.push_back(0);
  EXPECT_EQ(verdict(two), ErrorCode::kCorrupt);
  Ints halves = frame(0x20, {32}, {0x03, 0x01, 0, 0});
  const Ints second(halves.begin() + 1, halves.end());
  EXPECT_EQ(verdict(halves, 8), kAccepted);
  halves.insert(halves.end(), second.begin(), second.end());
  EXPECT_EQ(verdict(halves), ErrorCode::kCorrupt) << "two frames";
  halves = frame(0x20, {64}, kBlock);
  halves.insert(halves.end(), {0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0});
  EXPECT_EQ(verdict(halves), ErrorCode::kCorrupt) << "a skippable frame behind it";
}

TEST(ZstdRefusals, Blocks) {
  EXPECT_EQ(verdict(frame(0x20, {64}, {0x02, 0x02, 0, 0})), ErrorCode::kTruncated) << "not the last";
  EXPECT_EQ(verdict(frame(0x20, {64}, {0x03, 0x01, 0, 0})), ErrorCode::kCorrupt) << "32 bytes";
  EXPECT_EQ(verdict(frame(0x20, {64}, {0x03, 0x04, 0, 0})), ErrorCode::kCorrupt) << "128 bytes";
  EXPECT_EQ(verdict(frame(0x20, {64}, {0x07, 0x02, 0, 0})), ErrorCode::kCorrupt) << "a reserved type";
  EXPECT_EQ(verdict(frame(0x20, {64}, {0x03, 0x02, 0})), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({1, 0x28, 0xB5}), ErrorCode::kTruncated);
}

}  // namespace
}  // namespace deltawire::zstd_test
