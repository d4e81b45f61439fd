// The sums that say how much of what was due a step has sent.
#include <bit>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "channel/channel_testing.h"
#include "channel/step_record.h"

namespace deltawire::feedback_flow_test {
namespace {

using namespace testing;

constexpr std::uint64_t kCount = 3000;

double square(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return sum;
}

void step(Channel& channel, std::span<const Named> parts, std::uint64_t number, bool commits = true) {
  const auto pieces = channel.encode(MessageLayout(parts), step_id(number));
  ASSERT_TRUE(pieces) << pieces.error().message;
  commits ? channel.commit() : channel.revert();
}

std::unique_ptr<Channel> measured(std::string_view spec) {
  return *make_channel(spec, {.policy = {}, .measure_flow = true});
}

std::vector<float> residual(const Channel& channel) {
  const std::span<const float> values = channel.residual("a", 0);
  return {values.begin(), values.end()};
}

// By the residuals before and after, which a test sees: what was sent is what is missing.
TEST(FeedbackFlow, IsWhatTheResidualsSay) {
  for (const std::string spec : {"topk:k=5%", "signsgd", "3lc", "topk:k=5% with decay=0.5"}) {
    for (const Revert revert : {Revert::kExact, Revert::kFold}) {
      ChannelOptions options;
      options.revert = revert;
      options.measure_flow = true;
      options.policy.min_elements = 0;
      const auto made = make_channel(spec, options);
      ASSERT_TRUE(made) << made.error().message;
      Channel& channel = **made;
      std::vector<float> before;
      for (std::uint64_t number = 0; number < 16; ++number) {
        EXPECT_EQ(channel.flow().step, kNoStep);
        before = residual(channel);
        Values values = numbers(kCount, 1 + number);
        const std::vector<Named> parts{named("a", values)};
        step(channel, parts, number);
      }
      const Values given = numbers(kCount, 16);
      const std::vector<float> left = residual(channel);
      const double decay = spec.ends_with("0.5") ? 0.5 : 1.0;
      double sent = 0;
      double due = 0;
      double sent_of_due = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        const double x = double{given[i]} + decay * before[i];
        due += x * x;
        sent += (x - left[i]) * (x - left[i]);
        sent_of_due += x * (x - left[i]);
      }
      const FeedbackFlow flow = channel.flow();
      EXPECT_EQ(flow.step, 15u) << spec;
      EXPECT_EQ(flow.parts, 1u);
      EXPECT_NEAR(flow.given, square(given), 1e-4 * flow.given) << spec;
      EXPECT_NEAR(flow.left, square(left), 1e-4 * flow.left) << spec;
      EXPECT_NEAR(flow.sent, sent, 1e-4 * sent) << spec;
      EXPECT_NEAR(flow.due, due, 1e-4 * due) << spec;
      EXPECT_NEAR(flow.sent_of_due, sent_of_due, 1e-4 * due) << spec;
    }
  }
}

TEST(FeedbackFlow, IsOfCommittedStepsWithAResidual) {
  Values values = numbers(kCount, 1);
  const std::vector<Named> parts{named("a", values)};
  const auto exact = measured("fp32");
  step(*exact, parts, 15);
  EXPECT_EQ(exact->flow().step, kNoStep) << "nothing waits";
  const auto sender = measured("signsgd");
  step(*sender, parts, 15, false);
  EXPECT_EQ(sender->flow().step, kNoStep) << "it never happened";
  step(*sender, parts, 15);
  const double sent = sender->flow().sent;
  EXPECT_GT(sent, 0);
  step(*sender, parts, 16);
  EXPECT_EQ(sender->flow().step, 15u) << "not every step is measured";
  EXPECT_EQ(sender->flow().sent, sent);
  const auto unmeasured = *make_channel("signsgd");
  step(*unmeasured, parts, 15);
  EXPECT_EQ(unmeasured->flow().step, kNoStep) << "nobody asked";
}

TEST(FeedbackFlow, AddsUpParts) {
  Values first = numbers(kCount, 1);
  Values second = numbers(2 * kCount, 2);
  const std::vector<Named> both{named("a", first), named("b", second)};
  const auto sender = measured("signsgd");
  step(*sender, both, 15);
  EXPECT_EQ(sender->flow().parts, 2u);
  EXPECT_NEAR(sender->flow().given, square(first) + square(second), 1e-3 * square(second));
}

// 16-bit gradients are widened.
TEST(FeedbackFlow, CountsHalves) {
  Values values = numbers(kCount, 1);
  const std::vector<Named> parts{named("a", values)};
  std::vector<std::uint16_t> halves;
  for (const float value : values)
    halves.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
  TensorSlot slot{halves.data(), halves.size(), DType::kBF16};
  const std::vector<Named> narrow{Named{"a", slot}};
  const auto sender = measured("signsgd");
  step(*sender, narrow, 15);
  EXPECT_NEAR(sender->flow().given, square(values), 0.02 * square(values));
}

}  // namespace
}  // namespace deltawire::feedback_flow_test
