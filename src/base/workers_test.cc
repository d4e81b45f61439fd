#include "deltawire/workers.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/float_environment.h"
#include "base/no_threads_testing.h"

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
    // All threads are inside a task at the same time, so that each one is checked.
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

// A caller that finds them busy doesn't wait: neither another thread nor a task.
TEST(Workers, ACallerThatFindsThemBusyWorksAlone) {
  Workers workers(2);
  std::atomic<int> inner = 0;
  Workers::share(&workers, 2, [&](std::size_t) {
    const auto here = std::this_thread::get_id();
    Workers::share(&workers, 3, [&](std::size_t) { inner += std::this_thread::get_id() == here ? 1 : 100; });
  });
  EXPECT_EQ(inner, 6);
  std::atomic<int> again = 0;
  Workers::share(&workers, 2, [&](std::size_t) {
    ++again;
    while (again < 2) std::this_thread::yield();
  });
  EXPECT_EQ(again, 2) << "they help again afterwards";
}

// Sets a variable of the environment, or unsets it, while it lives.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) {
    const char* before = std::getenv(name);
    if (before != nullptr) before_ = before;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Setting() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(WorkersOfTheProcess, AreAsManyAsTheEnvironmentSays) {
  const Setting ranks("LOCAL_WORLD_SIZE", nullptr);
  {
    const Setting threads("OMP_NUM_THREADS", nullptr);
    const int all = Workers::threads_of_process();
    EXPECT_GE(all, 1);
    EXPECT_LE(all, 8);
    const Setting many("LOCAL_WORLD_SIZE", "100000");
    EXPECT_EQ(Workers::threads_of_process(), 1) << "each rank its share";
  }
  for (const auto& [text, threads] : {std::pair{"1", 1}, {"3", 3}, {"2,4", 2}, {"500", 8}}) {
    const Setting setting("OMP_NUM_THREADS", text);
    const Setting many("LOCAL_WORLD_SIZE", "100000");
    EXPECT_EQ(Workers::threads_of_process(), threads) << text;
  }
  const Setting nothing("OMP_NUM_THREADS", nullptr);
  const int all = Workers::threads_of_process();
  for (const char* text : {"", "many", "0", "-3"}) {
    const Setting setting("OMP_NUM_THREADS", text);
    EXPECT_EQ(Workers::threads_of_process(), all) << text;
  }
}

TEST(WorkersOfTheProcess, AreSharedAndAForkedChildHasItsOwn) {
  const Setting ranks("LOCAL_WORLD_SIZE", nullptr);
  {
    const Setting one("OMP_NUM_THREADS", "1");
    EXPECT_EQ(Workers::of_process(), nullptr);
  }
  const Setting setting("OMP_NUM_THREADS", "2");
  const auto workers = Workers::of_process();
  ASSERT_NE(workers, nullptr);
  EXPECT_EQ(Workers::of_process(), workers);
  const pid_t child = fork();
  if (child == 0) {
    // The parent's pool would leave the second task undone, as its thread doesn't exist here.
    const auto own = Workers::of_process();
    std::atomic<int> inside = 0;
    Workers::share(own.get(), 2, [&](std::size_t) {
      ++inside;
      while (inside < 2) std::this_thread::yield();
    });
    _exit(own != workers && inside == 2 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Workers, AreFewerWhereNoMoreThreadsCanBeStarted) {
  const testing::NoThreads limit;
  Workers workers(4);
  EXPECT_EQ(Workers::threads(&workers), 1);
  int tasks = 0;
  Workers::share(&workers, 3, [&](std::size_t) { ++tasks; });
  EXPECT_EQ(tasks, 3);
}

TEST(Workers, WithoutThemAllIsDoneHereInOrder) {
  EXPECT_EQ(Workers::threads(nullptr), 1);
  std::vector<std::size_t> order;
  Workers::share(nullptr, 5, [&](std::size_t index) { order.push_back(index); });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace deltawire
