#include "base/crc32c.h"

#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/property_testing.h"
#include "base/random.h"

namespace deltawire {
namespace {

std::vector<std::byte> bytes_from(std::initializer_list<unsigned> values) {
  std::vector<std::byte> bytes;
  for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

std::vector<std::byte> counting(int first, int step) {
  std::vector<std::byte> bytes(32);
  for (int i = 0; i < 32; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<std::byte>(first + step * i);
  return bytes;
}

void expect_of_all(std::span<const std::byte> bytes, std::uint32_t expected) {
  EXPECT_EQ(crc32c(bytes), expected);
  for (const Crc32cWay& way : crc32c_ways()) EXPECT_EQ(way.checksum(bytes, 0), expected) << way.name;
}

void expect_all_equal(std::span<const std::byte> bytes, std::uint32_t seed) {
  const std::uint32_t portable = crc32c_ways().front().checksum(bytes, seed);
  for (const Crc32cWay& way : crc32c_ways()) {
    ASSERT_EQ(way.checksum(bytes, seed), portable) << way.name << ", " << bytes.size() << " bytes";
  }
}

// RFC 3720, appendix B.4. The RFC prints the checksum's bytes in the order of transmission.
TEST(Crc32c, Rfc3720Examples) {
  expect_of_all(std::vector<std::byte>(32, std::byte{0x00}), 0x8A9136AA);
  expect_of_all(std::vector<std::byte>(32, std::byte{0xFF}), 0x62A8AB43);
  expect_of_all(counting(0, 1), 0x46DD794E);
  expect_of_all(counting(31, -1), 0x113FDB5C);
  const auto iscsi_read_command = bytes_from(
      {0x01, 0xC0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
       0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18,
       0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00});
  expect_of_all(iscsi_read_command, 0xD9963A56);
}

TEST(Crc32c, CheckValueOfTheCatalogue) {
  constexpr std::string_view kDigits = "123456789";
  expect_of_all(std::as_bytes(std::span(kDigits)), 0xE3069283);
  expect_of_all({}, 0);
}

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  CounterRng random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& value : bytes) value = static_cast<std::byte>(random.next() & 0xFF);
  return bytes;
}

TEST(Crc32c, EveryWayIsRightAtEveryLengthAndAlignment) {
  const std::vector<std::byte> bytes = random_bytes(700, 1);
  for (std::size_t offset = 0; offset < 9; ++offset) {
    for (std::size_t length = 0; length + offset <= bytes.size(); ++length) {
      const auto piece = std::span(bytes).subspan(offset, length);
      expect_all_equal(piece, 77);
    }
  }
}

// Around the blocks that the fast paths read: in three lanes of 128 and of 1,024 bytes; 64 bytes at a time
// from 128 on, 256 from 512 on.
TEST(Crc32c, EveryWayIsRightAroundBlocks) {
  const std::vector<std::byte> bytes = random_bytes(8000, 3);
  for (const std::size_t blocks :
       {384U, 768U, 1024U, 1280U, 1408U, 3072U, 3072U + 384U, 6144U, 6144U + 768U}) {
    for (std::size_t length = blocks - 9; length <= blocks + 9; ++length) {
      const auto piece = std::span(bytes).subspan(length % 8, length);
      expect_all_equal(piece, 78);
    }
  }
}

PROPERTY(Crc32cProperty, ASeedContinues) {
  const std::uint64_t seed = testing::drawn_word();
  const std::size_t count = testing::drawn(0, 5000);
  const std::size_t cut = testing::drawn(0, count + 1);
  const std::vector<std::byte> bytes = random_bytes(count, seed);
  const auto whole = std::span(bytes);
  for (const Crc32cWay& way : crc32c_ways()) {
    const std::uint32_t in_two = way.checksum(whole.subspan(cut), way.checksum(whole.first(cut), 0));
    HOLDS(in_two == crc32c(whole));
  }
}

TEST(Crc32c, EverySingleBitFlipIsSeen) {
  std::vector<std::byte> bytes = random_bytes(64, 2);
  const std::uint32_t clean = crc32c(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_NE(crc32c(bytes), clean) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}

TEST(Crc32c, OfTwoPiecesIsThatOfBoth) {
  CounterRng random(9);
  std::vector<std::byte> bytes(70001);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random.next());
  for (const std::size_t cut : {0U, 1U, 2U, 255U, 256U, 4097U, 65536U, 70000U, 70001U}) {
    const auto all = std::span<const std::byte>(bytes);
    const auto first = all.first(cut);
    const auto rest = all.subspan(cut);
    const auto rest_bytes = static_cast<std::uint32_t>(rest.size());
    EXPECT_EQ(crc32c_joined(crc32c(first), crc32c(rest), rest_bytes), crc32c(all)) << cut;
    EXPECT_EQ(crc32c_joined(77, crc32c(rest), rest_bytes), crc32c(rest, 77)) << cut;
  }
}

TEST(Crc32c, IsTheSameByAnyNumberOfThreads) {
  CounterRng random(10);
  std::vector<std::byte> bytes((std::size_t{128} << 10) + 13);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random.next());
  for (const int threads : {1, 2, 3, 12}) {
    Workers workers(threads);
    for (const std::size_t count : {std::size_t{0}, std::size_t{5000}, bytes.size()}) {
      const auto some = std::span<const std::byte>(bytes).first(count);
      EXPECT_EQ(crc32c_shared(some, 6, &workers), crc32c(some, 6)) << threads << ", " << count;
    }
  }
  EXPECT_EQ(crc32c_shared(bytes, 6, nullptr), crc32c(bytes, 6));
}

}  // namespace
}  // namespace deltawire
