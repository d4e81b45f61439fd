// How long members of an elastic session wait for each other.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "deltawire/transport.h"
#include "transport/process/machine.h"

namespace deltawire::elastic {

inline constexpr Clock::duration kSilence = std::chrono::seconds(3);  // after which a process counts as gone
inline constexpr Clock::duration kSlice =
    std::chrono::milliseconds(100);  // between two looks at interruptions

// "12.5"
inline std::string seconds_text(std::chrono::duration<double> time) {
  char text[32];
  (void)std::snprintf(text, sizeof text, "%g", time.count());
  return text;
}

// How long another process may be silent, of the time in which this one runs: what it was frozen for says
// nothing about others. Thread rule: one thread.
class Patience {
 public:
  explicit Patience(Clock::duration time) : left_(time) {}
  // Looks at the clock: at least once a second, or the rest doesn't count.
  Clock::duration left() {
    const Deadline now = MachineClock::now();
    left_ -= std::min<Clock::duration>(now - std::exchange(looked_, now), std::chrono::seconds(1));
    return left_;
  }
  bool is_over() { return left() <= Clock::duration{}; }

 private:
  Clock::duration left_;
  Deadline looked_ = MachineClock::now();
};

// Whether a session has been closed, and pauses that this ends.
class Ending {
 public:
  void set() {
    const MutexLock lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  bool is_set() const noexcept { return is_set_; }
  // For that time, or until set().
  void pause(Clock::duration time) {
    MutexLock lock(mutex_);
    const Deadline until = MachineClock::now() + time;
    while (!is_set_ && MachineClock::now() < until) changed_.wait_until(lock.standard(), until);
  }
  // Until set(): only where the thread that sets it is bound to.
  void wait() {
    MutexLock lock(mutex_);
    while (!is_set_) changed_.wait(lock.standard());
  }

 private:
  Mutex mutex_;
  Condition changed_;
  std::atomic<bool> is_set_ = false;
};

}  // namespace deltawire::elastic
