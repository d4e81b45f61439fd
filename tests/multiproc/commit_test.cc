// A step ends alike for every rank that lives, wherever one of them is killed (docs/design/commit.md).
//
// DELTAWIRE_KILLS=1000 kills that many ranks at each kind of point instead of a few; DELTAWIRE_SEED=n takes
// other random numbers than those that every run prints.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "rank_processes.h"

namespace deltawire::commit_test {
namespace {

constexpr int kWorld = 4;
constexpr std::uint32_t kBuckets = 3;
constexpr std::size_t kCount = 4000;
constexpr auto kDeadline = std::chrono::seconds(10);
constexpr auto kShortDeadline = std::chrono::seconds(3);  // where it is waited for

enum class Point { kAfterBegin, kBetweenBuckets, kAfterFinish, kAnywhere };

// Where the victim kills itself; kAnywhere leaves it to the parent.
struct Death {
  Point point = Point::kAnywhere;
  int victim = 0;
  std::uint64_t step = 0;
  std::chrono::seconds deadline = kDeadline;
};

void die_if_due(const Death& death, Point here, const RankContext& context, std::uint64_t step) {
  if (death.point == here && death.victim == context.rank && death.step == step) raise(SIGKILL);
}

// Steps without end. A step counts as done when its last bucket was finished.
void train(const RankContext& context, const std::string& spec, const Death& death) {
  auto transport = meet(context, spec);
  if (!transport) return context.record(transport.error());
  auto reducer = make_reducer(spec);
  if (!reducer) return context.record(reducer.error());
  std::vector<std::vector<float>> values(kBuckets, std::vector<float>(kCount));
  const std::string names[kBuckets] = {"conv.weight", "fc.weight", "fc.bias"};
  for (std::uint64_t step = 0;; ++step) {
    Status status;
    for (std::uint32_t bucket = 0; bucket < kBuckets && status; ++bucket) {
      for (std::size_t i = 0; i < kCount; ++i) {
        values[bucket][i] = static_cast<float>((i * 31 + step * 7 + bucket) % 17) - 8.0F;
      }
      const Named tensor{names[bucket], {values[bucket].data(), kCount, DType::kF32}, 0};
      status = (*reducer)->begin(std::span(&tensor, 1), {step, bucket, bucket + 1 == kBuckets}, **transport,
                                 Clock::now() + death.deadline);
    }
    if (status) die_if_due(death, Point::kAfterBegin, context, step);
    for (std::uint32_t bucket = 0; bucket < kBuckets && status; ++bucket) {
      const auto report = (*reducer)->finish();
      if (!report) status = forward_error(report);
      if (report && bucket == 0) die_if_due(death, Point::kBetweenBuckets, context, step);
      if (report) context.own().digest = report->digest;
    }
    if (!status) return context.record(status.error());
    ++context.own().steps_done;
    die_if_due(death, Point::kAfterFinish, context, step);
  }
}

int trials() {
  const char* wanted = std::getenv("DELTAWIRE_KILLS");
  return wanted == nullptr ? 40 : std::atoi(wanted);
}

unsigned seed() {
  const char* wanted = std::getenv("DELTAWIRE_SEED");
  return wanted == nullptr ? 20261121U : static_cast<unsigned>(std::atoi(wanted));
}

void expect_agreement(RankProcesses& ranks, int victim) {
  std::uint32_t steps = 0;
  bool first = true;
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank == victim) continue;
    ASSERT_TRUE(ranks.wait_exit(rank, std::chrono::seconds(40))) << "rank " << rank << " hangs";
    const RankRecord& record = ranks.record(rank);
    EXPECT_EQ(record.failed, 1) << "rank " << rank;
    EXPECT_EQ(record.suspect, victim) << "rank " << rank << ": " << record.message.data();
    EXPECT_EQ(record.code, static_cast<int>(ErrorCode::kPeerLost)) << record.message.data();
    if (first) steps = record.steps_done;
    first = false;
    EXPECT_EQ(record.steps_done, steps) << "torn: rank " << rank << " stands elsewhere";
    const std::uint64_t stands = steps == 0 ? kNoStep : steps - 1;
    EXPECT_EQ(record.last_committed_step, stands) << "rank " << rank << ": " << record.message.data();
  }
}

std::string point_name(const ::testing::TestParamInfo<Point>& point) {
  switch (point.param) {
    case Point::kAfterBegin: return "AfterBegin";
    case Point::kBetweenBuckets: return "BetweenBuckets";
    case Point::kAfterFinish: return "AfterFinish";
    case Point::kAnywhere: break;
  }
  return "Anywhere";
}

class Kill : public ::testing::TestWithParam<Point> {};
INSTANTIATE_TEST_SUITE_P(Points, Kill,
                         ::testing::Values(Point::kAfterBegin, Point::kBetweenBuckets, Point::kAfterFinish,
                                           Point::kAnywhere),
                         point_name);

TEST_P(Kill, TheSurvivorsAgree) {
  std::printf("seed %u\n", seed());
  std::mt19937 random(seed() + static_cast<unsigned>(GetParam()));
  const std::string specs[] = {"3lc", "ring(fp32)", "gather(sbc:p=1%)", "fp32"};
  for (int trial = 0; trial < trials() && !HasFailure(); ++trial) {
    Death death;
    death.point = GetParam();
    death.victim = static_cast<int>(random() % kWorld);
    death.step = 1 + random() % 20;
    const std::string& spec = specs[static_cast<std::size_t>(trial) % std::size(specs)];
    const std::chrono::microseconds moment(random() % 20000);
    SCOPED_TRACE("trial " + std::to_string(trial) + ", " + spec + ", victim " + std::to_string(death.victim));
    RankProcesses ranks(kWorld, [&](const RankContext& context) { train(context, spec, death); });
    if (death.point == Point::kAnywhere) {
      ASSERT_TRUE(ranks.wait_steps(death.victim, 2));
      std::this_thread::sleep_for(moment);  // the moment of death is the input here
      ranks.send_signal(death.victim, SIGKILL);
    }
    expect_agreement(ranks, death.victim);
  }
}

// Steps of one long tensor, long enough that most moments of a step are in the middle of a copy. After each,
// every value must be the mean; after a failure, what was given.
void train_whole(const RankContext& context, std::chrono::seconds deadline) {
  auto transport = meet(context, "fp32");
  if (!transport) return context.record(transport.error());
  auto reducer = make_reducer("fp32");
  if (!reducer) return context.record(reducer.error());
  std::vector<float> values(std::size_t{1} << 20);
  for (std::uint64_t step = 0;; ++step) {
    const auto given = [&](std::size_t i, int rank) {
      return static_cast<float>((i * 31 + step * 7 + static_cast<std::size_t>(rank) * 4) % 16);
    };
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = given(i, context.rank);
    const Named tensor{"w", {values.data(), values.size(), DType::kF32}, 0};
    const auto report =
        (*reducer)->all_reduce(std::span(&tensor, 1), {step, 0, true}, **transport, Clock::now() + deadline);
    for (std::size_t i = 0; i < values.size(); ++i) {
      float expected = given(i, context.rank);
      if (report) expected = (given(i, 0) + given(i, 1) + given(i, 2) + given(i, 3)) / kWorld;
      if (values[i] == expected) continue;
      return context.record({ErrorCode::kCorrupt, "value " + std::to_string(i) + " is torn", context.rank});
    }
    if (!report) return context.record(report.error());
    ++context.own().steps_done;
  }
}

TEST(LongValues, AreWholeOrUntouchedWhoeverDies) {
  std::mt19937 random(seed() + 300);
  for (int trial = 0; trial < trials() / 4 && !HasFailure(); ++trial) {
    RankProcesses ranks(kWorld, [&](const RankContext& context) { train_whole(context, kDeadline); });
    const int victim = static_cast<int>(random() % kWorld);
    ASSERT_TRUE(ranks.wait_steps(victim, 2));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30000));
    ranks.send_signal(victim, SIGKILL);
    expect_agreement(ranks, victim);
  }
}

void freeze_rank_1_until_the_others_have_gone(RankProcesses& ranks) {
  ranks.send_signal(1, SIGSTOP);
  for (const int rank : {0, 2, 3}) {
    ASSERT_TRUE(ranks.wait_exit(rank, std::chrono::seconds(40))) << "rank " << rank << " hangs";
    EXPECT_EQ(ranks.record(rank).suspect, 1) << ranks.record(rank).message.data();
  }
  ranks.send_signal(1, SIGCONT);
  ASSERT_TRUE(ranks.wait_exit(1, std::chrono::seconds(40)));
}

TEST(LongValues, AreWholeOrUntouchedInARankThatWakesUp) {
  std::mt19937 random(seed() + 400);
  for (int trial = 0; trial < 3 && !HasFailure(); ++trial) {
    RankProcesses ranks(kWorld, [&](const RankContext& context) { train_whole(context, kShortDeadline); });
    ASSERT_TRUE(ranks.wait_steps(1, 2));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30000));
    ASSERT_NO_FATAL_FAILURE(freeze_rank_1_until_the_others_have_gone(ranks));
    for (const int rank : {1, 2, 3}) {
      EXPECT_NE(ranks.record(rank).code, static_cast<int>(ErrorCode::kCorrupt))
          << ranks.record(rank).message.data();
      EXPECT_EQ(ranks.record(rank).steps_done, ranks.record(0).steps_done) << "torn: rank " << rank;
    }
  }
}

// Two die at once, or nearly: the survivors agree.
TEST(Survivors, AgreeWhenTwoDieAtOnce) {
  std::mt19937 random(seed() + 100);
  for (int trial = 0; trial < trials() && !HasFailure(); ++trial) {
    RankProcesses ranks(kWorld, [&](const RankContext& context) { train(context, "3lc", {}); });
    ASSERT_TRUE(ranks.wait_steps(0, 2));
    const std::chrono::microseconds moment(random() % 5000);
    ranks.send_signal(2, SIGKILL);
    std::this_thread::sleep_for(moment % 500);
    ranks.send_signal(3, SIGKILL);
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(ranks.wait_exit(rank, std::chrono::seconds(40))) << "rank " << rank << " hangs";
      EXPECT_GE(ranks.record(rank).suspect, 2) << ranks.record(rank).message.data();
    }
    EXPECT_EQ(ranks.record(0).steps_done, ranks.record(1).steps_done) << "torn in trial " << trial;
    EXPECT_EQ(ranks.record(0).last_committed_step, ranks.record(1).last_committed_step);
  }
}

// A rank that is stopped is left behind, and finds the others' verdict when it wakes up.
TEST(Survivors, AreJoinedByAFrozenRankThatWakesUp) {
  std::mt19937 random(seed() + 200);
  Death none;
  none.deadline = kShortDeadline;
  for (int trial = 0; trial < 3 && !HasFailure(); ++trial) {
    RankProcesses ranks(kWorld, [&](const RankContext& context) { train(context, "3lc", none); });
    ASSERT_TRUE(ranks.wait_steps(1, 2));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    ASSERT_NO_FATAL_FAILURE(freeze_rank_1_until_the_others_have_gone(ranks));
    for (const int rank : {1, 2, 3}) {
      EXPECT_EQ(ranks.record(rank).steps_done, ranks.record(0).steps_done) << "torn: rank " << rank;
      EXPECT_EQ(ranks.record(rank).last_committed_step, ranks.record(0).last_committed_step);
    }
  }
}

}  // namespace
}  // namespace deltawire::commit_test
