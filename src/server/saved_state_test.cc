// What a saved state's reader takes and refuses.
#include "server/saved_state.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace deltawire::server_test {
namespace {

constexpr StateHead kHead = {.whose = StateOf::kWorker, .parts = 2, .hash = 99, .step = 7};
constexpr std::byte kSome[] = {std::byte{1}, std::byte{2}, std::byte{3}};

std::vector<std::byte> written() {
  StateWriter writer(kHead);
  const float values[] = {0.5F, -2.0F};
  writer.number(1234567890123);
  writer.floats(values);
  writer.bytes(kSome);
  return writer.finish();
}

TEST(SavedState, IsReadAsItWasWritten) {
  const std::vector<std::byte> state = written();
  EXPECT_EQ(state.size(), 32U + 8 + 8 + 3 + 4);
  auto reader = StateReader::open(state, {StateOf::kWorker, 2, 99, 0});
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->step(), 7U);
  EXPECT_EQ(*reader->number(), 1234567890123U);
  EXPECT_EQ(*reader->floats(2), (std::vector<float>{0.5F, -2.0F}));
  EXPECT_FALSE(reader->end());
  EXPECT_TRUE(std::ranges::equal(*reader->bytes(3), kSome));
  EXPECT_TRUE(reader->end());
}

TEST(SavedState, EndsBeforeWhatIsAskedFor) {
  const std::vector<std::byte> state = written();
  auto reader = *StateReader::open(state, kHead);
  EXPECT_EQ(reader.bytes(20).error().code, ErrorCode::kTruncated);
  EXPECT_EQ(reader.floats(5).error().code, ErrorCode::kTruncated);
  // As many as a product of 4 would wrap at.
  EXPECT_EQ(reader.floats(std::uint64_t{1} << 62).error().code, ErrorCode::kTruncated);
  ASSERT_TRUE(reader.bytes(16));
  EXPECT_EQ(reader.number().error().code, ErrorCode::kTruncated);
  EXPECT_TRUE(reader.bytes(3));
}

TEST(SavedState, OfAnotherOwnerIsRefused) {
  const std::vector<std::byte> state = written();
  const auto code_for = [&](const StateHead& head) { return StateReader::open(state, head).error().code; };
  EXPECT_EQ(code_for({StateOf::kServer, 2, 99, 7}), ErrorCode::kCorrupt);
  EXPECT_EQ(code_for({StateOf::kWorker, 3, 99, 7}), ErrorCode::kMismatch);
  EXPECT_EQ(code_for({StateOf::kWorker, 2, 98, 7}), ErrorCode::kMismatch);
}

TEST(SavedState, EveryCutAndEveryFlippedByteIsRefused) {
  const std::vector<std::byte> state = written();
  for (std::size_t at = 0; at < state.size(); ++at) {
    EXPECT_FALSE(StateReader::open(Bytes(state).first(at), kHead)) << at;
    std::vector<std::byte> damaged = state;
    damaged[at] ^= std::byte{0x10};
    EXPECT_FALSE(StateReader::open(damaged, kHead)) << at;
  }
}

}  // namespace
}  // namespace deltawire::server_test
