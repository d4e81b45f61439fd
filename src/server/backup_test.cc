// Workers that no step waits for: what they push too late is not lost.
#include <latch>

#include <gtest/gtest.h>

#include "server/server_testing.h"
#include "transport/links/faulty_link_testing.h"

namespace deltawire::server_test {
namespace {

// Worker 1 begins when worker 0 has made all its steps but one, and that one waits until it has.
TEST(BackupWorkers, AreNotWaitedForAndKeepWhatTheyHave) {
  std::latch almost(1);
  std::latch caught_up(1);
  Job job{.options = {.servers = 2, .backup = 1, .push = "3lc", .pull = "3lc"}, .steps = 8};
  job.before = [&](std::size_t worker, std::uint64_t step) {
    if (worker == 0 && step == 7) {
      almost.count_down();
      caught_up.wait();
    }
    if (worker == 1 && step == 0) almost.wait();
    if (worker == 1 && step == 7) {
      caught_up.count_down();
    }
  };
  const Outcome outcome = run(job);
  expect_equal_bits(outcome);
  const ServerCounts& late = outcome.worker_counts[1];
  EXPECT_GE(late.late_pushes, shapes().size());
  EXPECT_GT(late.skipped_steps, 0U) << "after its first step it has the newest model that has come";
  for (const ServerCounts& counts : outcome.server_counts) EXPECT_EQ(counts.steps, 8U);
}

// Pushes that leave before the others begin and arrive half a second later: the server says so.
TEST(BackupWorkers, TakeBackWhatArrivedTooLate) {
  std::latch sent(1);
  Job job{.options = {.backup = 1, .push = "3lc", .pull = "3lc"}, .steps = 12};
  job.links.resize(3);
  job.links[2].wrap = test::faulty(
      {.kind = test::LinkFault::Kind::kDelay, .peer = 0, .delay = std::chrono::milliseconds(500)});
  job.before = [&](std::size_t worker, std::uint64_t step) {
    if (worker == 0 && step == 0) sent.wait();
  };
  job.pushed = [&](std::size_t worker, std::uint64_t step) {
    if (worker == 1 && step == 0) sent.count_down();
  };
  const Outcome outcome = run(job);
  expect_equal_bits(outcome);
  EXPECT_GT(outcome.worker_counts[1].late_pushes, 0U);
  EXPECT_GT(outcome.server_counts[0].late_pushes, 0U);
  EXPECT_GE(outcome.worker_counts[1].late_pushes, outcome.server_counts[0].late_pushes) << "all were told";
}

// In every step one push counts alone, so that sums can be compared: worker 0 makes three steps, and what
// worker 1 handed in too late in the first leaves with its push of the fourth, which only it makes.
TEST(BackupWorkers, SendLateGradientsWithTheNext) {
  for (const std::string push : {"3lc", "fp32", "sbc:p=1%"}) {
    std::latch made(1);
    Job job{.options = {.backup = 1, .push = push, .pull = "3lc"}, .steps = 5, .first_stops_at = 3};
    job.before = [&](std::size_t worker, std::uint64_t step) {
      if (worker == 1 && step == 0) made.wait();
    };
    job.pulled = [&](std::size_t worker, std::uint64_t step) {
      if (worker == 0 && step == 2) made.count_down();
    };
    const Outcome outcome = run(job);
    EXPECT_EQ(outcome.server_counts[0].steps, 5U);
    EXPECT_GE(outcome.worker_counts[1].late_pushes, 1U);
    expect_equal_bits(outcome);
    expect_nothing_lost(outcome, 1);
  }
}

}  // namespace
}  // namespace deltawire::server_test
