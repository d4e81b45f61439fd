#include "base/bits.h"

#include <array>
#include <initializer_list>
#include <vector>

#include <gtest/gtest.h>

#include "base/property_testing.h"

namespace deltawire {
namespace {

std::uint64_t low_bits(std::uint64_t value, unsigned bits) {
  return value & ((std::uint64_t{1} << bits) - 1);
}

std::vector<std::byte> bytes_of(std::initializer_list<unsigned> values) {
  std::vector<std::byte> bytes;
  for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(BitWriter, FirstBitIsTheLowestOfTheFirstByte) {
  std::array<std::byte, 2> out{};
  BitWriter writer(out.data(), out.size());
  writer.put(1, 1);
  writer.put(0, 1);
  writer.put(0b11, 2);
  writer.put(0b10001, 5);
  EXPECT_EQ(writer.finish(), 2u);
  EXPECT_EQ(out[0], std::byte{0b00011101});
  EXPECT_EQ(out[1], std::byte{0b1});
  EXPECT_FALSE(writer.overflowed());
}

TEST(BitWriter, StopsAtItsEndAndSaysSo) {
  std::array<std::byte, 3> out{std::byte{0}, std::byte{0}, std::byte{0xAA}};
  BitWriter writer(out.data(), 2);
  writer.put(0xFFFFFF, 24);
  EXPECT_EQ(writer.finish(), 2u);
  EXPECT_TRUE(writer.overflowed());
  EXPECT_EQ(out[2], std::byte{0xAA});
}

TEST(BitWriter, NothingWrittenTakesNoBytes) {
  BitWriter writer(nullptr, 0);
  writer.put(0, 0);
  EXPECT_EQ(writer.finish(), 0u);
  EXPECT_FALSE(writer.overflowed());
}

TEST(BitWriter, FinishingTwicePadsOnce) {
  std::byte out[4] = {};
  BitWriter writer(out, sizeof out);
  writer.put(1, 3);
  EXPECT_EQ(writer.finish(), 1u);
  EXPECT_EQ(writer.finish(), 1u);
}

TEST(BitReader, PastTheEndGivesZeroForGood) {
  const std::vector<std::byte> bytes = bytes_of({0xFF});
  BitReader reader(bytes.data(), bytes.size());
  EXPECT_EQ(reader.get(5), 31u);
  EXPECT_FALSE(reader.exhausted());
  EXPECT_EQ(reader.get(4), 0u);
  EXPECT_TRUE(reader.exhausted());
  EXPECT_EQ(reader.get(1), 0u);
  EXPECT_FALSE(reader.at_clean_end());
}

TEST(BitReader, UnaryCountsOnesAndTakesTheZero) {
  const std::vector<std::byte> bytes = bytes_of({0b00110111, 0xFF});
  BitReader reader(bytes.data(), bytes.size());
  EXPECT_EQ(reader.get_unary(10), 3u);
  EXPECT_EQ(reader.get_unary(10), 2u);
  EXPECT_EQ(reader.get(1), 0u);
  EXPECT_FALSE(reader.exhausted());
}

TEST(BitReader, UnaryStopsAtTheCapAndTakesNoMore) {
  const std::vector<std::byte> bytes = bytes_of({0xFF});
  BitReader reader(bytes.data(), bytes.size());
  EXPECT_EQ(reader.get_unary(5), 5u);
  EXPECT_EQ(reader.get(3), 7u);
  EXPECT_FALSE(reader.exhausted());
}

TEST(BitReader, UnaryWithoutItsZeroIsExhausted) {
  const std::vector<std::byte> bytes = bytes_of({0xFF});
  BitReader reader(bytes.data(), bytes.size());
  EXPECT_EQ(reader.get_unary(20), 0u);
  EXPECT_TRUE(reader.exhausted());
}

TEST(BitReader, UnaryMayEndWithTheStream) {
  const std::vector<std::byte> bytes = bytes_of({0b01111111});
  BitReader reader(bytes.data(), bytes.size());
  EXPECT_EQ(reader.get_unary(20), 7u);
  EXPECT_FALSE(reader.exhausted());
  EXPECT_TRUE(reader.at_clean_end());
}

TEST(BitReader, OnceExhaustedItStaysAtItsEnd) {
  const std::vector<std::byte> bytes = bytes_of({0xFF, 0xFF});
  BitReader reader(bytes.data(), bytes.size());
  EXPECT_EQ(reader.get(17), 0u);
  EXPECT_TRUE(reader.exhausted());
  for (const unsigned bits : {1u, 8u, 56u}) EXPECT_EQ(reader.get(bits), 0u);
  EXPECT_EQ(reader.get_unary(10), 0u);
  EXPECT_EQ(reader.get(0), 0u);
  EXPECT_FALSE(reader.at_clean_end());
  BitReader unary(bytes.data(), bytes.size());
  EXPECT_EQ(unary.get_unary(50), 0u);
  EXPECT_EQ(unary.get(1), 0u);
  EXPECT_TRUE(unary.exhausted());
}

TEST(BitReader, EveryBitOfTheEndCounts) {
  for (unsigned bit = 3; bit < 8; ++bit) {
    const std::vector<std::byte> bytes = bytes_of({1u << bit});
    BitReader reader(bytes.data(), bytes.size());
    reader.get(3);
    EXPECT_FALSE(reader.at_clean_end()) << bit;
  }
}

TEST(BitReader, CleanEndIsLessThanAByteOfZeros) {
  const std::vector<std::byte> zeros = bytes_of({0b00000101});
  BitReader clean(zeros.data(), zeros.size());
  clean.get(3);
  EXPECT_TRUE(clean.at_clean_end());

  BitReader dirty(zeros.data(), zeros.size());
  dirty.get(2);
  EXPECT_FALSE(dirty.at_clean_end());

  const std::vector<std::byte> too_long = bytes_of({1, 0});
  BitReader early(too_long.data(), too_long.size());
  early.get(8);
  EXPECT_FALSE(early.at_clean_end());

  BitReader empty(nullptr, 0);
  EXPECT_TRUE(empty.at_clean_end());
}

struct Field {
  std::uint64_t value;
  unsigned bits;
};

std::vector<Field> some_fields() {
  std::vector<Field> fields(testing::drawn(0, 100));
  for (Field& field : fields) {
    field.bits = static_cast<unsigned>(testing::drawn(0, 57));
    field.value = low_bits(testing::drawn_word(), field.bits);
  }
  return fields;
}

std::uint64_t total_bits(const std::vector<Field>& fields) {
  std::uint64_t bits = 0;
  for (const Field& field : fields) bits += field.bits;
  return bits;
}

std::vector<std::byte> written(const std::vector<Field>& fields) {
  std::vector<std::byte> out((total_bits(fields) + 7) / 8);
  BitWriter writer(out.data(), out.size());
  for (const Field& field : fields) writer.put(field.value, field.bits);
  HOLDS(writer.finish() == out.size());
  HOLDS(!writer.overflowed());
  return out;
}

PROPERTY(BitsProperty, WhatIsWrittenIsRead) {
  const std::vector<Field> fields = some_fields();
  const std::vector<std::byte> bytes = written(fields);
  BitReader reader(bytes.data(), bytes.size());
  for (const Field& field : fields) HOLDS(reader.get(field.bits) == field.value);
  HOLDS(!reader.exhausted());
  HOLDS(reader.at_clean_end());
}

PROPERTY(BitsProperty, AReaderOfFewerBytesIsExhaustedAndNothingElse) {
  const std::vector<Field> fields = some_fields();
  std::vector<std::byte> bytes = written(fields);
  PRESUMES(!bytes.empty());
  bytes.pop_back();
  bytes.shrink_to_fit();  // so that a sanitizer sees a read past the end
  BitReader reader(bytes.data(), bytes.size());
  for (const Field& field : fields) reader.get(field.bits);
  HOLDS(reader.exhausted());
}

}  // namespace
}  // namespace deltawire
