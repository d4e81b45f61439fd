#include "deltawire/workers.h"

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_environment.h"

namespace deltawire {
namespace {

class Sharing : public ::testing::TestWithParam<int> {};

TEST_P(Sharing, EveryTaskRunsOnceAndHasReturned) {
  Workers workers(GetParam());
  EXPECT_EQ(Workers::threads(&workers), GetParam());
  for (const std::size_t count : {0U, 1U, 2U, 3U, 16U, 1000U}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<int> runs(count);  // not atomic: the thread sanitizer sees a task that is still running
      Workers::share(&workers, count, [&](std::size_t index) { ++runs[index]; });
      EXPECT_EQ(std::accumulate(runs.begin(), runs.end(), 0), static_cast<int>(count));
      for (const int one : runs) EXPECT_EQ(one, 1);
    }
  }
}

TEST_P(Sharing, TasksComputeInTheDefinedFloatingPointMode) {
  const std::uint64_t callers = FloatEnvironment::read_control();
  FloatEnvironment::write_control(callers | FloatEnvironment::kFlushToZero);
  Workers workers(GetParam());  // a new thread begins in the mode of the one that starts it
  std::atomic<int> flushed = 0;
  std::atomic<int> inside = 0;
  {
    const FloatEnvironment environment;
    // All threads are inside a task at once, so that each has its say.
    Workers::share(&workers, static_cast<std::size_t>(GetParam()), [&](std::size_t) {
      flushed += (FloatEnvironment::read_control() & FloatEnvironment::kFlushToZero) != 0 ? 1 : 0;
      ++inside;
      while (inside < GetParam()) std::this_thread::yield();
    });
  }
  FloatEnvironment::write_control(callers);
  EXPECT_EQ(flushed, 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, Sharing, ::testing::Values(1, 2, 3, 8));

TEST(Workers, SeveralThreadsTakePart) {
  Workers workers(3);
  // All three must be inside a task at once; nobody waits longer than it takes the others to wake up.
  std::atomic<int> inside = 0;
  Workers::share(&workers, 3, [&](std::size_t) {
    ++inside;
    while (inside < 3) std::this_thread::yield();
  });
  EXPECT_EQ(inside, 3);
}

TEST(Workers, TheCallerWaitsForTheOthersTasks) {
  Workers workers(2);
  const auto caller = std::this_thread::get_id();
  std::atomic<bool> begun = false;
  std::atomic<bool> callers_is_over = false;
  bool over = false;
  Workers::share(&workers, 2, [&](std::size_t) {
    if (std::this_thread::get_id() == caller) {
      while (!begun) std::this_thread::yield();
      callers_is_over = true;
      return;
    }
    begun = true;
    while (!callers_is_over) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // a long task
    over = true;
  });
  EXPECT_TRUE(over);
}

TEST(Workers, WithoutThemAllIsDoneHereInOrder) {
  EXPECT_EQ(Workers::threads(nullptr), 1);
  std::vector<std::size_t> order;
  Workers::share(nullptr, 5, [&](std::size_t index) { order.push_back(index); });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace deltawire
