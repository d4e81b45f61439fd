// Tensors that can't be coded together: the rules, and a channel that keeps to them.
#include "channel/distinct_tensors.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "channel/channel_testing.h"

namespace deltawire::distinct_tensors_test {
namespace {

using namespace testing;

Named part(std::uint64_t first, std::uint64_t count, std::string_view name = "w") {
  return {name, {nullptr, count, DType::kF32}, first};
}

// What is wrong; empty: nothing.
std::string refusal(const Status& status) {
  if (status) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  return status.error().message;
}

bool names(const std::string& message, std::string_view words) {
  return message.find(words) != std::string::npos;
}

TEST(DistinctTensors, NamesAreUnique) {
  EXPECT_EQ(refusal(check_names({})), "");
  EXPECT_EQ(refusal(check_names(std::vector{part(0, 3, "b"), part(0, 3, "a")})), "");
  EXPECT_TRUE(
      names(refusal(check_names(std::vector{part(0, 3, "b"), part(0, 3, "a"), part(3, 3, "b")})), "'b'"));
}

TEST(DistinctTensors, PartsDontOverlap) {
  EXPECT_EQ(refusal(check_parts(std::vector{part(3, 4), part(0, 3), part(2, 5, "v"), part(7, 0)})), "");
  EXPECT_TRUE(
      names(refusal(check_parts(std::vector{part(3, 4), part(0, 4)})), "two parts of 'w' have element 3;"));
  for (const std::uint64_t count : {5U, 1U, 0U}) {
    const std::vector twice{part(2, count), part(0, 1), part(2, count)};
    EXPECT_TRUE(names(refusal(check_parts(twice)), "two tensors are called 'w'")) << count;
  }
}

TEST(DistinctTensors, TheFirstDifferenceHasItsNumberAndBothWords) {
  const auto difference = [](std::string_view one, std::string_view other) {
    return first_difference({one, " here"}, {other, " there"});
  };
  EXPECT_EQ(difference("'a' 3\n'b' 40\n'c' 1\n", "'a' 3\n'b' 41\n'd' 1\n"),
            "tensor 1 is 'b' 40 here, and 'b' 41 there");
  EXPECT_EQ(difference("'a' 3\n", "'b' 3\n"), "tensor 0 is 'a' 3 here, and 'b' 3 there");
  EXPECT_EQ(difference("'a' 3\n", "'a' 3\n'b' 3\n"), "tensor 1 is none here, and 'b' 3 there");
  EXPECT_EQ(difference("'a' 3\n'b' 3\n", "'a' 3\n"), "tensor 1 is 'b' 3 here, and none there");
  EXPECT_EQ(difference("'a'\n", "'\x1b'\n"), "tensor 0 is 'a' here, and ' ' there");
}

// In the same message; in the next one of the step, what the first has left is sent with it.
TEST(DistinctTensors, AChannelTakesAPartOnceAMessage) {
  Values values(300, 1.0F);
  const auto sender = channel("3lc", Revert::kExact);
  const Named one = named("w", values);
  for (int again = 0; again < 2; ++again) {
    const auto refused = sender->encode(std::vector{one, one}, step_id(0));
    ASSERT_FALSE(refused);
    EXPECT_TRUE(names(refused.error().message, "two tensors are called 'w'"));
    EXPECT_TRUE(sender->residual("w", 0).empty());
  }
  sender->revert();
  for (int message = 0; message < 2; ++message) EXPECT_TRUE(sender->encode(std::span(&one, 1), step_id(0)));
}

TEST(DistinctTensors, AChannelDecodesIntoSlotsThatLieApart) {
  Values values(300, 1.0F);
  Values into(599);
  const auto sender = channel("3lc");
  const auto pieces = sender->encode(std::vector{named("v", values), named("w", values)}, step_id(0));
  ASSERT_TRUE(pieces);
  const std::vector<Named> slots{{"v", {into.data(), 300, DType::kF32}},
                                 {"w", {into.data() + 299, 300, DType::kF32}}};
  const Status refused = sender->decode(*pieces, slots, step_id(0), Into::kOverwrite, 1);
  EXPECT_TRUE(names(refusal(refused), "'v' and 'w' share memory"));
}

TEST(DistinctTensors, AMessageLiesApartFromItsTensors) {
  Values memory(600, 1.0F);
  const std::vector<Named> apart{{"w", {memory.data(), 300, DType::kF32}}};
  const std::vector<Named> on_it{{"w", {memory.data() + 299, 300, DType::kF32}}};
  const auto sender = channel("3lc", Revert::kExact);
  const auto room = std::as_writable_bytes(std::span(memory)).subspan(1200);
  const auto refused = sender->encode_to(on_it, step_id(0), room);
  EXPECT_TRUE(!refused && names(refused.error().message, "'w' and the message share memory"));
  const auto bytes = sender->encode_to(apart, step_id(0), room);
  ASSERT_TRUE(bytes) << bytes.error().message;
  const Bytes message = room.first(*bytes);
  EXPECT_EQ(refusal(sender->decode(message, apart, step_id(0), Into::kOverwrite, 1)), "");
  EXPECT_TRUE(names(refusal(sender->decode(message, on_it, step_id(0), Into::kOverwrite, 1)), "memory"));
}

}  // namespace
}  // namespace deltawire::distinct_tensors_test
