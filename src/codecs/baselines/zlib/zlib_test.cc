// zlib: streams made by hand, good ones and bad ones. What it shares with zstd: plane_codec_test.cc.
#include <gtest/gtest.h>

#include "codecs/codec_testing.h"

namespace deltawire::zlib_test {
namespace {

using namespace testing;

const testing::Expects kExpects{{
    .codec = "zlib",
    .error_bound = [](const testing::EncodedValue&) { return 0.0; },
}};

// Mode, header, one block of fixed codes: a byte 0, 63 more by a copy; the Adler-32 of 64 zeros.
const Ints kStream = {1, 0x78, 0x9C, 0x63, 0x60, 0xA0, 0x0C, 0, 0, 0, 0x40, 0, 1};

Ints changed(std::size_t place, int value) {
  Ints bytes = kStream;
  bytes[place] = value;
  return bytes;
}

ErrorCode verdict(const Ints& bytes, std::uint64_t count = 16) {
  return testing::verdict_of("zlib", one_chunk(bytes, 0), count);
}

TEST(Zlib, DecodesAStreamMadeByHand) {
  const auto back = testing::decode(*codec_of("zlib"), one_chunk(kStream, 0).view(), 16);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, std::vector<float>(16, 0.0F));
}

TEST(ZlibRefusals, Streams) {
  EXPECT_EQ(verdict(kStream), kAccepted);
  EXPECT_EQ(verdict(kStream, 15), ErrorCode::kCorrupt) << "more bytes than expected";
  EXPECT_EQ(verdict(kStream, 17), ErrorCode::kCorrupt) << "fewer";
  EXPECT_EQ(verdict(changed(1, 0x79)), ErrorCode::kCorrupt) << "another method";
  EXPECT_EQ(verdict(changed(2, 0x9D)), ErrorCode::kCorrupt) << "the header's check bits";
  EXPECT_EQ(verdict(changed(2, 0xBB)), ErrorCode::kCorrupt) << "a dictionary";
  EXPECT_EQ(verdict(changed(3, 0x07)), ErrorCode::kCorrupt) << "a reserved type of block";
  EXPECT_EQ(verdict(changed(12, 2)), ErrorCode::kCorrupt) << "the checksum";
  Ints gzip = kStream;
  gzip[1] = 0x1F;
  gzip[2] = 0x8B;
  EXPECT_EQ(verdict(gzip), ErrorCode::kCorrupt);
}

TEST(ZlibRefusals, Ends) {
  for (std::size_t bytes = 1; bytes < kStream.size(); ++bytes) {
    const Ints cut(kStream.begin(), kStream.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_EQ(verdict(cut), ErrorCode::kTruncated) << bytes;
  }
  Ints longer = kStream;
  longer.push_back(0);
  EXPECT_EQ(verdict(longer), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deltawire::zlib_test
