#include <algorithm>

#include <gtest/gtest.h>

#include "server/message_heads.h"

namespace deltawire {
namespace {

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
    const auto step = read_skip(changed);
    ASSERT_FALSE(step) << bit;
    EXPECT_EQ(step.error().code, ErrorCode::kCorrupt);
  }
}

}  // namespace
}  // namespace deltawire
