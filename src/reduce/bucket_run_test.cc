// What a bucket's messages are called, what coding costs it, and whom an error blames.
#include "reduce/bucket_run.h"

#include <chrono>
#include <limits>

#include <gtest/gtest.h>

#include "reduce/scripted_transport_testing.h"

namespace deltawire::bucket_run_test {
namespace {

using std::chrono::seconds;

TEST(BucketRun, EachRoundHasStagesOfItsOwn) {
  ScriptedTransport transport(1, 3);
  const Step step{.number = 7, .bucket = 5, .scale = 2.0F};
  BucketRun run;
  std::vector<Tag> tags;
  for (const std::uint16_t round : {std::uint16_t{0}, std::uint16_t{1}}) {
    run.open(step, transport, Clock::now() + seconds(1), round);
    for (const std::uint16_t stage : {kFirstStage, kSecondStage}) {
      const MessageId id = run.message_id(2, stage);
      EXPECT_EQ(id.step, 7u);
      EXPECT_EQ(id.rank, 2u);
      EXPECT_EQ(id.world, 3u);
      EXPECT_EQ(id.bucket, 5u);
      EXPECT_EQ(id.stage, 2 * round + stage);
      EXPECT_EQ(id.scale, 2.0F);
      tags.push_back(run.tag(stage));
    }
  }
  const Tag first = (Tag{7} << 32) | (Tag{5} << 16);
  EXPECT_EQ(tags, (std::vector<Tag>{first, first + 1, first + 2, first + 3}));
}

TEST(BucketRun, ANewBucketBeginsANewReport) {
  ScriptedTransport transport(0, 1);
  BucketRun run;
  run.open({.number = 0, .timed = true}, transport, Clock::now() + seconds(1), 0);
  run.report().bytes_sent = 9;
  {
    const Stopwatch timer(run.report(), Stopwatch::Phase::kEncode);
  }
  EXPECT_EQ(run.report().spans.size(), 1u);
  run.open({.number = 1}, transport, Clock::now() + seconds(1), 0);
  EXPECT_EQ(run.report().bytes_sent, 0u);
  {
    const Stopwatch timer(run.report(), Stopwatch::Phase::kEncode);
  }
  EXPECT_TRUE(run.report().spans.empty()) << "the step is not timed";
}

TEST(BucketRun, ItsClockBeginsAnewWithAllItsTime) {
  ScriptedTransport transport(0, 1);
  BucketRun run;
  const Deadline first = Clock::now() + seconds(60);
  run.open({}, transport, first, 0);
  EXPECT_EQ(run.deadline(), first);
  run.restart_clock();
  EXPECT_GE(run.deadline(), first);
  EXPECT_LE(run.deadline(), Clock::now() + seconds(60));
}

TEST(BucketRun, WhatItEncodesItDecodesAndErrorsBlameTheSender) {
  ScriptedTransport transport(1, 2);
  BucketRun run;
  run.open({.number = 3}, transport, Clock::now() + seconds(1), 0);
  const auto channel = make_channel("fp32");
  ASSERT_TRUE(channel);
  std::vector<float> values{1.0F, 2.0F};
  const Named part{"w", {values.data(), 2, DType::kF32}};
  const auto message = run.encode(**channel, std::span(&part, 1), kFirstStage);
  ASSERT_TRUE(message) << message.error().message;
  const ReceivedMessage received{*message, std::span(&part, 1)};
  const std::span messages(&received, 1);
  const Status added = run.decode(**channel, messages, {1, 1, kFirstStage}, Into::kAccumulate, 0.5F);
  ASSERT_TRUE(added) << added.error().message;
  EXPECT_EQ(values, (std::vector<float>{1.5F, 3.0F}));
  const Status other = run.decode(**channel, messages, {0, 1, kSecondStage}, Into::kOverwrite, 1.0F);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().suspect, 0) << "who sent the bytes, not who made them";
  EXPECT_TRUE(other.error().message.starts_with("from rank 0: ")) << other.error().message;
  EXPECT_GT(run.report().encode_seconds, 0);
  EXPECT_GT(run.report().decode_seconds, 0);
}

TEST(BucketRun, InputThatIsNotFiniteIsRefusedWithAdvice) {
  ScriptedTransport transport(0, 1);
  BucketRun run;
  run.open({}, transport, Clock::now() + seconds(1), 0);
  const auto channel = make_channel("int8");
  ASSERT_TRUE(channel);
  std::vector<float> values(5000, std::numeric_limits<float>::infinity());
  const Named part{"w", {values.data(), values.size(), DType::kF32}};
  const auto message = run.encode(**channel, std::span(&part, 1), kFirstStage);
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().code, ErrorCode::kNotFinite);
  EXPECT_TRUE(message.error().text().ends_with("; mend the input, or let such steps pass (nonfinite)"))
      << message.error().message;
}

}  // namespace
}  // namespace deltawire::bucket_run_test
