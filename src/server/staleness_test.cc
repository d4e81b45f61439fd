// Workers that may be ahead of the slowest, by a bound; and workers that have missed many pulls.
#include <atomic>
#include <latch>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "server/server_testing.h"

namespace deltawire::server_test {
namespace {

std::uint32_t digest(const std::vector<Values>& tensors) {
  std::uint32_t crc = 0;
  for (const Values& values : tensors) crc = crc * 31 + crc32c(std::as_bytes(std::span(values)));
  return crc;
}

// Worker 1 does not begin before worker 0 is two steps ahead; worker 0 does not make a third. It has ended
// when worker 1 makes its last.
TEST(Staleness, LetsAWorkerBeSoFarAheadAndNoFarther) {
  std::latch ahead(1);
  std::latch ended(1);
  std::atomic<bool> has_begun = false;
  Job job{.options = {.servers = 2, .staleness = 2}, .steps = 8};
  job.before = [&](std::size_t worker, std::uint64_t step) {
    if (worker == 0 && step == 2) ahead.count_down();
    if (worker == 0 && step == 3) {
      EXPECT_TRUE(has_begun) << "three steps ahead";
    }
    if (worker == 1 && step == 0) {
      ahead.wait();
      for (std::uint64_t other = 0; other < 20; ++other)
        (void)gradient(1, other, 0);  // time to go on wrongly
      has_begun = true;
    }
    if (worker == 1 && step + 1 == job.steps) ended.wait();
  };
  job.pulled = [&](std::size_t worker, std::uint64_t step) {
    if (worker == 0 && step + 1 == job.steps) ended.count_down();
  };
  const Outcome outcome = run_and_compare_versions(job);
  expect_equal_bits(outcome);
  for (const ServerCounts& counts : outcome.server_counts) EXPECT_EQ(counts.steps, job.steps);
  EXPECT_EQ(outcome.seen[0][0].version, 0U);
  EXPECT_EQ(outcome.seen[0][1].version, 0U);
  EXPECT_LT(outcome.seen[0].back().version, job.steps) << "the last changes come at close()";
  EXPECT_EQ(outcome.versions, std::vector(2, job.steps));
  EXPECT_EQ(outcome.worker_counts[0].late_pushes, 0U);
}

TEST(Staleness, BoundsHowOldParametersAre) {
  for (const std::uint64_t staleness : {0U, 1U, 3U}) {
    Job job{.options = {.servers = 2, .staleness = staleness, .push = "3lc", .pull = "3lc:s=1.75"},
            .workers = 3,
            .steps = 12};
    const Outcome outcome = run_and_compare_versions(job);
    expect_equal_bits(outcome);
    for (const auto& worker : outcome.seen) {
      ASSERT_EQ(worker.size(), job.steps);
      for (std::uint64_t step = 0; step < job.steps; ++step) {
        EXPECT_GE(worker[step].version + staleness, step + 1);
        EXPECT_LE(worker[step].version, step + 1);
      }
    }
    const auto served = serve_parts(Model(7).tensors, 2);
    ASSERT_TRUE(served);
    EXPECT_EQ(outcome.server_counts[0].encodes + outcome.server_counts[1].encodes,
              job.steps * served->size());
  }
}

// The last steps of workers whom the first leaves behind are made by none: they wait in residuals.
TEST(Staleness, LosesNothingOfAGradient) {
  for (const std::string push : {"3lc", "fp32", "sbc:p=1%"}) {
    Job job{.options = {.servers = 2, .staleness = 3, .push = push, .pull = "3lc"},
            .workers = 3,
            .steps = 9,
            .first_stops_at = 4};
    std::latch ahead(2);
    job.before = [&](std::size_t worker, std::uint64_t step) {
      if (worker == 0 && step == 3) ahead.wait();
      if (worker != 0 && step == 6) ahead.count_down();
    };
    SCOPED_TRACE(push);
    const Outcome outcome = run_and_compare_versions(job);
    expect_equal_bits(outcome);
    EXPECT_EQ(outcome.server_counts[0].steps, 4U);
    EXPECT_GE(outcome.worker_counts[1].late_pushes, 2 * shapes().size());
    expect_nothing_lost(outcome);
  }
}

// What the synchronous server made before there was staleness: parameters and bytes (with 40 pulls, whose
// heads have 7 bytes more now).
TEST(Staleness, OfZeroIsTheSynchronousServer) {
  const Outcome outcome = run({.options = {.servers = 2, .push = "3lc", .pull = "3lc:s=1.75"},
                               .workers = 3,
                               .optimizer = "momentum:lr=0.1",
                               .steps = 7});
  EXPECT_EQ(digest(outcome.view), 2146111211U);
  EXPECT_EQ(digest(outcome.master), 143732473U);
  EXPECT_EQ(outcome.worker_counts[1].push_bytes, 43695U);
  EXPECT_EQ(outcome.worker_counts[1].pull_bytes, 168109U + 40 * 7);
}

// Worker 1 begins when worker 0 has made 39 steps. What it lacks by then fills its stream; of float32 more
// than one change is more bytes than the model.
TEST(MissedPulls, AreTheWholeModelWhereThatIsFewerBytes) {
  std::latch almost(1);
  std::latch caught_up(1);
  Job job{.options = {.backup = 1, .push = "3lc", .pull = "fp32", .max_lag = 64}, .steps = 40};
  job.before = [&](std::size_t worker, std::uint64_t step) {
    if (worker == 0 && step == 39) {
      almost.count_down();
      caught_up.wait();
    }
    if (worker == 1 && step == 0) almost.wait();
    if (worker == 1 && step == 39) caught_up.count_down();
  };
  const Outcome outcome = run_and_compare_versions(job);
  expect_equal_bits(outcome);
  EXPECT_GT(outcome.worker_counts[1].whole_models, 0U);
  EXPECT_EQ(outcome.worker_counts[0].whole_models, 0U);
  EXPECT_EQ(outcome.server_counts[0].whole_models, outcome.worker_counts[1].whole_models);
  EXPECT_LT(outcome.worker_counts[1].pull_bytes, outcome.worker_counts[0].pull_bytes);
  EXPECT_EQ(outcome.server_counts[0].encodes, 40 * shapes().size()) << "a change is encoded once";
}

TEST(Staleness, GoesTogetherWithBackupWorkers) {
  Job job{.options = {.servers = 2, .backup = 1, .staleness = 2, .push = "3lc", .pull = "3lc"},
          .workers = 3,
          .steps = 20};
  const Outcome outcome = run_and_compare_versions(job);
  expect_equal_bits(outcome);
  for (const auto& worker : outcome.seen) {
    for (std::size_t i = 1; i < worker.size(); ++i) EXPECT_GE(worker[i].version, worker[i - 1].version);
  }
}

TEST(Staleness, IsBounded) {
  auto mesh = connect_inproc(2);
  ASSERT_TRUE(mesh);
  Model model(7);
  EXPECT_EQ(make_server(model.tensors, "sgd", {.staleness = 1025}, *(*mesh)[0]).error().code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deltawire::server_test
