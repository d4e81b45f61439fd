// Pushes of a step: in time, late, refused, and of workers that were dropped.
#include "server/push_collector.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "deltawire/channel.h"

namespace deltawire::server_test {
namespace {

using Arrival = PushCollector::Arrival;

std::vector<std::byte> frame_of(std::uint64_t step) {
  float value = 1;
  const std::uint64_t dims[] = {1};
  const Named part{.name = "w", .tensor = {.values = &value, .count = 1, .dims = dims}};
  const auto channel = *make_model_channel();
  return joined(*channel->encode(std::span(&part, 1), {.step = step}));
}

class PushCollectorTest : public ::testing::Test {
 protected:
  Result<Arrival> arrive(std::size_t worker, std::uint64_t step,
                         std::optional<std::uint64_t> collecting = 7) {
    const std::vector<std::byte> frame = frame_of(step);
    std::ranges::copy(frame, pushes_.room(worker, frame.size()).begin());
    return pushes_.arrive(worker, frame.size(), collecting);
  }

  Result<Arrival> skip(std::size_t worker, std::uint64_t step, std::optional<std::uint64_t> collecting = 7) {
    const SkipMessage message = skip_message(step);
    std::ranges::copy(message, pushes_.room(worker, message.size()).begin());
    return pushes_.arrive(worker, message.size(), collecting);
  }

  WorkerGroup workers_{3, [] {
                         ServerOptions options;
                         options.backup = 1;
                         return options;
                       }()};
  PushCollector pushes_{workers_};
};

TEST_F(PushCollectorTest, AStepHasEnoughWhenAllButTheBackupWorkersPushed) {
  EXPECT_EQ(*arrive(0, 7), Arrival::kInTime);
  EXPECT_FALSE(pushes_.has_enough());
  EXPECT_FALSE(pushes_.is_awaited(0));
  EXPECT_TRUE(pushes_.is_awaited(2));
  EXPECT_EQ(*arrive(2, 7), Arrival::kInTime);
  EXPECT_TRUE(pushes_.has_enough());
}

TEST_F(PushCollectorTest, APushOfAnEarlierStepIsLate) {
  EXPECT_EQ(*arrive(0, 6), Arrival::kLate);
  EXPECT_TRUE(pushes_.is_awaited(0));
  EXPECT_EQ(*arrive(0, 7, std::nullopt), Arrival::kLate);  // the server closes
}

// Two pushes are needed of three workers: one that skips leaves two that may push.
TEST_F(PushCollectorTest, WhoSkipsIsNotWaitedFor) {
  EXPECT_EQ(*skip(0, 7), Arrival::kSkips);
  EXPECT_FALSE(pushes_.is_awaited(0));
  EXPECT_FALSE(pushes_.has_enough());
  EXPECT_EQ(*arrive(1, 7), Arrival::kInTime);
  EXPECT_FALSE(pushes_.has_enough());
  EXPECT_TRUE(pushes_.may_have_enough());
  workers_.drop(2, 7, Error{});
  EXPECT_TRUE(pushes_.has_enough());
  EXPECT_FALSE(pushes_.is_empty());
  pushes_.end_step();
  EXPECT_FALSE(pushes_.has_counted(0));
  EXPECT_TRUE(pushes_.is_awaited(0));
  EXPECT_TRUE(pushes_.is_empty());
}

TEST_F(PushCollectorTest, AStepThatAllSkipHasNoPush) {
  EXPECT_EQ(*skip(0, 7), Arrival::kSkips);
  EXPECT_EQ(*skip(1, 7), Arrival::kSkips);
  EXPECT_FALSE(pushes_.has_enough());
  ASSERT_EQ(*pushes_.arrive(2, 0, 7), Arrival::kClosed);
  EXPECT_TRUE(pushes_.may_have_enough());
  EXPECT_TRUE(pushes_.has_enough());
  EXPECT_TRUE(pushes_.is_empty());
  EXPECT_FALSE(pushes_.discard(0));
  EXPECT_TRUE(pushes_.is_awaited(0));
}

TEST_F(PushCollectorTest, ThatAnEarlierStepIsSkippedChangesNothing) {
  EXPECT_EQ(*skip(0, 6), Arrival::kSkips);
  EXPECT_EQ(*skip(1, 8, std::nullopt), Arrival::kSkips);  // the server closes
  EXPECT_TRUE(pushes_.is_awaited(0));
  EXPECT_TRUE(pushes_.is_awaited(1));
}

TEST_F(PushCollectorTest, APushOfALaterStepIsRefused) {
  EXPECT_EQ(skip(1, 8).error().code, ErrorCode::kMismatch);
  testing::expect_refused(arrive(0, 8), ErrorCode::kMismatch, "step 8 in step 7");
}

TEST_F(PushCollectorTest, WhatIsNotAFrameIsRefused) {
  (void)pushes_.room(0, 10);
  EXPECT_FALSE(pushes_.arrive(0, 10, 7));
  EXPECT_TRUE(pushes_.is_awaited(0));
}

TEST_F(PushCollectorTest, ClosedWorkersPushNoMore) {
  EXPECT_TRUE(pushes_.may_have_enough());
  EXPECT_EQ(*pushes_.arrive(0, 0, 7), Arrival::kClosed);
  EXPECT_FALSE(pushes_.is_awaited(0));
  EXPECT_TRUE(pushes_.may_have_enough());
  EXPECT_EQ(*pushes_.arrive(1, 0, 7), Arrival::kClosed);
  EXPECT_FALSE(pushes_.may_have_enough());
}

TEST_F(PushCollectorTest, PushesOfDroppedWorkersCountButOthersAreWaitedFor) {
  EXPECT_TRUE(arrive(0, 7));
  workers_.drop(0, 7, {ErrorCode::kPeerLost, "gone"});
  EXPECT_TRUE(arrive(1, 7));
  EXPECT_FALSE(pushes_.has_enough());
  EXPECT_TRUE(arrive(2, 7));
  EXPECT_TRUE(pushes_.has_enough());
  std::vector<std::size_t> averaged;
  const auto bad = pushes_.average([&](std::size_t worker, Bytes, Into, float scale) -> Status {
    EXPECT_EQ(scale, 1.0F / 3);
    averaged.push_back(worker);
    return {};
  });
  EXPECT_FALSE(bad);
  EXPECT_EQ(averaged, (std::vector<std::size_t>{0, 1, 2}));
}

TEST_F(PushCollectorTest, TheFirstPushOfAMeanOverwrites) {
  EXPECT_TRUE(arrive(1, 7));
  EXPECT_TRUE(arrive(2, 7));
  std::vector<Into> into;
  const auto bad = pushes_.average([&](std::size_t, Bytes push, Into how, float) -> Status {
    EXPECT_EQ(push.size(), frame_of(7).size());
    into.push_back(how);
    return {};
  });
  EXPECT_FALSE(bad);
  EXPECT_EQ(into, (std::vector<Into>{Into::kOverwrite, Into::kAccumulate}));
}

TEST_F(PushCollectorTest, APushThatCannotBeDecodedLeavesTheStep) {
  EXPECT_TRUE(arrive(0, 7));
  EXPECT_TRUE(arrive(1, 7));
  const auto refuse_second = [](std::size_t worker, Bytes, Into, float) -> Status {
    if (worker == 1) return fail(ErrorCode::kCorrupt, "wrong");
    return {};
  };
  const std::optional<BadPush> bad = pushes_.average(refuse_second);
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->worker, 1U);
  EXPECT_EQ(bad->error.code, ErrorCode::kCorrupt);
  EXPECT_FALSE(pushes_.has_enough());
  EXPECT_FALSE(pushes_.average(refuse_second));
  pushes_.end_step();
  EXPECT_TRUE(pushes_.has_counted(0));
  EXPECT_FALSE(pushes_.has_counted(1));
}

TEST_F(PushCollectorTest, ADiscardedPushIsOutOfTheStep) {
  EXPECT_TRUE(arrive(0, 7));
  EXPECT_TRUE(pushes_.discard(0));
  EXPECT_FALSE(pushes_.discard(0));
  EXPECT_TRUE(pushes_.is_awaited(0));
}

TEST_F(PushCollectorTest, TheRoomOnlyGrows) {
  EXPECT_EQ(pushes_.room(0, 100).size(), 100U);
  EXPECT_EQ(pushes_.room(0, 10).size(), 100U);
}

}  // namespace
}  // namespace deltawire::server_test
