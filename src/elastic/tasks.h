// Threads whose number isn't known in advance, each with an end of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <system_error>

#include "base/mutex.h"
#include "transport/process/machine.h"

namespace deltawire::elastic {

// Thread rule: any thread may call any member, but a task must not call join().
class Tasks {
 public:
  Tasks() = default;
  ~Tasks() { join(); }

  // Whether there was a thread for it.
  bool start(std::function<void()> body) {
    auto ended = std::make_shared<std::atomic<bool>>(false);
    std::list<Task> over;  // joined without the lock
    {
      const MutexLock lock(mutex_);
      take_ended(over);
      try {
        tasks_.push_back({MachineThread([body = std::move(body), ended] {
                            body();
                            *ended = true;
                          }),
                          ended});
      } catch (const std::system_error&) {
        ended.reset();
      }
    }
    for (Task& each : over) each.thread.join();
    return ended != nullptr;
  }
  std::size_t running() {
    const MutexLock lock(mutex_);
    std::size_t count = 0;
    for (const Task& each : tasks_) count += *each.ended ? 0U : 1U;
    return count;
  }
  void join() {
    std::list<Task> all;
    {
      const MutexLock lock(mutex_);
      all.swap(tasks_);
    }
    for (Task& each : all) each.thread.join();
  }

 private:
  struct Task {
    MachineThread thread;
    std::shared_ptr<std::atomic<bool>> ended;
  };

  void take_ended(std::list<Task>& into) DELTAWIRE_REQUIRES(mutex_) {
    for (auto each = tasks_.begin(); each != tasks_.end();) {
      const auto next = std::next(each);
      if (*each->ended) into.splice(into.end(), tasks_, each);
      each = next;
    }
  }

  Mutex mutex_;
  std::list<Task> tasks_ DELTAWIRE_GUARDED_BY(mutex_);
};

// Calls action(0) ... action(count - 1) on this thread and up to threads_max - 1 others, as many as there
// are.
inline void at_once(std::size_t count, std::size_t threads_max,
                    const std::function<void(std::size_t)>& action) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) action(i);
  };
  Tasks others;
  for (std::size_t i = 1; i < std::min(count, threads_max) && others.start(work); ++i) continue;
  work();
}

}  // namespace deltawire::elastic
