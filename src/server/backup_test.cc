// Workers that no step waits for: what they push too late is not lost.
#include <latch>

#include <gtest/gtest.h>

#include "server/server_testing.h"
#include "transport/links/faulty_link_testing.h"

namespace deltawire::server_test {
namespace {

// The mean divides by how many pushes counted, so conservation is counted where always one does.
void expect_nothing_lost(const Outcome& outcome, std::size_t workers) {
  const Model start(7);
  for (std::size_t tensor = 0; tensor < shapes().size(); ++tensor) {
    for (std::size_t i = 0; i < shapes()[tensor].second; ++i) {
      double in = 0;
      double waits = 0;
      for (std::size_t worker = 0; worker < workers; ++worker) {
        in += outcome.pushed[worker][tensor][i];
        waits += outcome.residuals[worker][tensor][i];
      }
      ASSERT_NEAR(static_cast<double>(start.values[tensor][i]) - outcome.master[tensor][i] + waits, in, 1e-5)
          << tensor << " " << i;
    }
  }
}

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
    Job job{.options = {.backup = 1, .push = push, .pull = "3lc"}, .steps = 5};
    job.before = [&](std::size_t worker, std::uint64_t step) {
      if (worker == 1 && step == 0) made.wait();
    };
    auto mesh = connect_inproc(3);
    ASSERT_TRUE(mesh);
    Outcome outcome;
    make_room(job, outcome);
    Job short_job = job;
    short_job.steps = 3;
    std::thread server([&] { serve(job, *(*mesh)[0], outcome); });
    std::thread late([&] { work(job, 1, *(*mesh)[2], outcome); });
    Model model(99);
    auto first = make_worker(model.tensors, job.options, *(*mesh)[1]);
    ASSERT_TRUE(first);
    ASSERT_TRUE((*first)->open(soon()));
    for (std::uint64_t step = 0; step < short_job.steps; ++step) {
      for (std::size_t tensor = 0; tensor < shapes().size(); ++tensor) {
        const Values values = gradient(0, step, tensor);
        for (std::size_t i = 0; i < values.size(); ++i) outcome.pushed[0][tensor][i] += values[i];
        ASSERT_TRUE((*first)->push(tensor, values));
      }
      ASSERT_TRUE((*first)->pull(soon()));
    }
    made.count_down();
    ASSERT_TRUE((*first)->close(soon()));
    for (std::size_t tensor = 0; tensor < shapes().size(); ++tensor) {
      ASSERT_TRUE((*first)->add_residual(tensor, outcome.residuals[0][tensor]));
    }
    outcome.workers[0] = model.values;
    late.join();
    server.join();
    EXPECT_EQ(outcome.server_counts[0].steps, 5U);
    EXPECT_GE(outcome.worker_counts[1].late_pushes, 1U);
    expect_equal_bits(outcome);
    expect_nothing_lost(outcome, 2);
  }
}

}  // namespace
}  // namespace deltawire::server_test
