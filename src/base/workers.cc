#include "deltawire/workers.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <charconv>
#include <memory>
#include <new>
#include <system_error>

#include <sched.h>
#include <unistd.h>

#include "base/control_groups.h"
#include "base/environment.h"
#include "base/float_environment.h"

namespace deltawire {

namespace {

constexpr int kMostOfProcess = 8;

// The whole number that the variable begins with (OMP_NUM_THREADS may list one for each level), or 0.
int number_in(const char* variable) noexcept {
  const std::string_view text = setting_of(variable);
  int number = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return std::max(number, 0);
}

int processors_allowed() noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  return static_cast<int>(std::thread::hardware_concurrency());
}

// Threads don't exist in a forked child, so each process has its own pool. It is never destroyed, since there
// is no safe time to do so.
struct ProcessPool {
  pid_t process = getpid();
  Workers workers{Workers::threads_of_process()};
};
std::atomic<ProcessPool*> process_pool = nullptr;

}  // namespace

int Workers::processors() {
  return std::max(1, std::min(processors_allowed(), cpu_quota()));
}

int Workers::threads_of_process() {
  int threads = number_in("OMP_NUM_THREADS");
  if (threads == 0) threads = processors() / std::max(1, number_in("LOCAL_WORLD_SIZE"));
  return std::clamp(threads, 1, kMostOfProcess);
}

std::shared_ptr<Workers> Workers::of_process() {
  if (threads_of_process() == 1) return nullptr;
  ProcessPool* pool = process_pool;
  if (pool == nullptr || pool->process != getpid()) {
    auto made = std::make_unique<ProcessPool>();
    if (process_pool.compare_exchange_strong(pool, made.get())) pool = made.release();
  }
  return {std::shared_ptr<void>(), &pool->workers};
}

Workers::Workers(int threads) {
  assert(threads >= 1);
  threads_.reserve(static_cast<std::size_t>(threads - 1));
  // NOLINTBEGIN(bugprone-empty-catch): the threads that there are do the work.
  try {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { thread_main(); });
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  // NOLINTEND(bugprone-empty-catch)
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// A task is a block of about 16,384 values: compared with that, the cost of taking it under a lock is
// negligible.
void Workers::take_tasks(std::unique_lock<std::mutex>& lock) {
  while (next_ < work_.count) {
    const std::size_t index = next_++;
    ++running_;
    lock.unlock();
    work_.call(work_.context, index);
    lock.lock();
    assert(running_ > 0);
    --running_;
  }
  if (running_ == 0) done_.notify_one();
}

void Workers::run(const Work& work) {
  std::unique_lock lock(mutex_);
  if (shared_) {
    lock.unlock();
    for (std::size_t i = 0; i < work.count; ++i) work.call(work.context, i);
    return;
  }
  assert(running_ == 0 && next_ >= work_.count);
  shared_ = true;
  work_ = work;
  next_ = 0;
  changed_.notify_all();
  take_tasks(lock);
  done_.wait(lock, [this] { return running_ == 0; });
  assert(next_ >= work.count);
  shared_ = false;
}

void Workers::thread_main() {
  const FloatEnvironment environment;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (next_ < work_.count) take_tasks(lock);
    changed_.wait(lock, [this] { return stopping_ || next_ < work_.count; });
  }
}

}  // namespace deltawire
