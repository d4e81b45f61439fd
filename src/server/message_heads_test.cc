#include <optional>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/refusal_testing.h"
#include "server/served_model.h"

namespace deltawire {
namespace {

std::vector<std::byte> with_checksum(std::vector<std::byte> head) {
  const std::uint32_t checksum = crc32c(head);
  head.resize(head.size() + sizeof(checksum));
  store_le(head.data() + head.size() - sizeof(checksum), checksum);
  return head;
}

std::optional<ErrorCode> error_of(Bytes pull) {
  const Result<PullHead> head = read_pull(pull);
  return head ? std::nullopt : std::optional(head.error().code);
}

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(PullHead, OfAChange) {
  for (const PushVerdict verdict : {PushVerdict::kLate, PushVerdict::kCounted}) {
    std::vector<std::byte> pull = change_head(verdict);
    EXPECT_EQ(pull, with_checksum(bytes_of({3, 1, 0, static_cast<int>(verdict)})));
    pull.push_back(std::byte{7});
    const auto head = read_pull(pull);
    ASSERT_TRUE(head);
    EXPECT_EQ(head->kind, PullKind::kChange);
    ASSERT_EQ(head->steps(), 1U);
    EXPECT_EQ(head->verdict(0), verdict);
    EXPECT_EQ(head->body.size(), 1U);
  }
}

TEST(PullHead, OfAWholePart) {
  const std::vector<std::byte> pull =
      whole_head({PushVerdict::kCounted, PushVerdict::kLate, PushVerdict::kCounted});
  EXPECT_EQ(pull, with_checksum(bytes_of({4, 3, 0, 1, 0, 1})));
  const auto head = read_pull(pull);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->kind, PullKind::kWhole);
  ASSERT_EQ(head->steps(), 3U);
  EXPECT_EQ(head->verdict(0), PushVerdict::kCounted);
  EXPECT_EQ(head->verdict(1), PushVerdict::kLate);
  EXPECT_TRUE(head->body.empty());
}

TEST(PullHead, ThatIsCutShortIsTruncated) {
  const std::vector<std::byte> pull = whole_head({PushVerdict::kCounted, PushVerdict::kLate});
  for (std::size_t bytes = 0; bytes < pull.size(); ++bytes) {
    EXPECT_EQ(error_of(Bytes(pull).first(bytes)), ErrorCode::kTruncated) << bytes;
  }
}

// No inverted bit is believed, whichever it is.
TEST(PullHead, HasAChecksum) {
  std::vector<std::byte> pull = change_head(PushVerdict::kCounted);
  for (std::size_t bit = 0; bit < 8 * pull.size(); ++bit) {
    pull[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_TRUE(error_of(pull)) << bit;
    pull[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  EXPECT_FALSE(error_of(pull));
}

TEST(PullHead, ThatNoServerWritesIsCorrupt) {
  for (const auto& head : {bytes_of({2, 1, 0, 1}), bytes_of({5, 1, 0, 1}),  // neither kind
                           bytes_of({3, 0, 0}), bytes_of({4, 0, 0}), bytes_of({3, 2, 0, 1, 1}),
                           bytes_of({3, 1, 0, 2}), bytes_of({4, 2, 0, 1, 255})}) {
    EXPECT_EQ(error_of(with_checksum(head)), ErrorCode::kCorrupt);
  }
}

TEST(SkipMessage, HasItsStep) {
  for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{0x0102030405060708}}) {
    const SkipMessage message = skip_message(step);
    ASSERT_TRUE(is_skip(message.size()));
    EXPECT_EQ(*read_skip(message), step);
  }
  EXPECT_FALSE(is_skip(0));
  EXPECT_EQ(std::to_integer<int>(skip_message(7)[0]), 7);
}

TEST(SkipMessage, NoBitMayChange) {
  const SkipMessage message = skip_message(7);
  for (std::size_t bit = 0; bit < 8 * message.size(); ++bit) {
    SkipMessage changed = message;
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    testing::expect_refused(read_skip(changed), ErrorCode::kCorrupt);
  }
}

}  // namespace
}  // namespace deltawire
