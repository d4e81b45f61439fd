// Threads whose number isn't known in advance, each with an end of its own.
#pragma once

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
  Tasks(const Tasks&) = delete;
  Tasks& operator=(const Tasks&) = delete;

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

}  // namespace deltawire::elastic
