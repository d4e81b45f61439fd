// What a mesh asks of its machine: the time, ways to wait, and threads. All of it goes through this file, so
// that a simulation (docs/design/simulation.md) can stand in for the machine. Without one, each call costs a
// predictable branch more than the system's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include <poll.h>

#include "deltawire/transport.h"
#include "transport/process/fork_guard.h"

namespace deltawire {

// The machine of all ranks in a simulation, whose threads are fibers of one thread.
class SimulatedMachine {
 public:
  virtual ~SimulatedMachine() = default;
  virtual Deadline now() noexcept = 0;
  // Blocks the calling fiber until `event`, an address, is notified, or until `until`.
  virtual void wait(const void* event, Deadline until) noexcept = 0;
  virtual void notify(const void* event) noexcept = 0;
  // Like ppoll(), on descriptors that the simulation has invented; a notified `event` ends it, too.
  virtual void poll(const void* event, std::span<pollfd> entries, Deadline until) noexcept = 0;
  virtual std::uint64_t start(std::function<void()> body) = 0;
  virtual void join(std::uint64_t fiber) noexcept = 0;
};

// Set in a simulation only, before it creates a mesh. A global, because a pointer in every object that reads
// the clock would cost more than this branch.
inline constinit SimulatedMachine* simulated_machine = nullptr;

struct MachineClock {
  static Deadline now() noexcept {
    if (simulated_machine != nullptr) [[unlikely]]
      return simulated_machine->now();
    return Clock::now();
  }
};

// A condition variable. Like one, it may end a wait for no reason.
class Condition {
 public:
  using Lock = std::unique_lock<std::mutex>;

  void notify_one() noexcept {
    if (simulated_machine != nullptr) [[unlikely]]
      return simulated_machine->notify(this);
    condition_.notify_one();
  }
  void notify_all() noexcept {
    if (simulated_machine != nullptr) [[unlikely]]
      return simulated_machine->notify(this);
    condition_.notify_all();
  }
  void wait(Lock& lock) {
    if (simulated_machine != nullptr) [[unlikely]]
      return wait_simulated(lock, Deadline::max());
    condition_.wait(lock);
  }
  void wait_until(Lock& lock, Deadline until) {
    if (simulated_machine != nullptr) [[unlikely]]
      return wait_simulated(lock, until);
    condition_.wait_until(lock, until);
  }
  template <class Holds>
  void wait(Lock& lock, Holds holds) {
    while (!holds()) wait(lock);
  }
  template <class Holds>
  void wait_for(Lock& lock, Clock::duration time, Holds holds) {
    const Deadline until = MachineClock::now() + time;
    while (!holds() && MachineClock::now() < until) wait_until(lock, until);
  }

 private:
  void wait_simulated(Lock& lock, Deadline until) {
    lock.unlock();
    simulated_machine->wait(this, until);
    lock.lock();
  }

  std::condition_variable condition_;
};

// ppoll() that other threads can end.
class WakeablePoll {
 public:
  // `eventfd` is empty in a simulation.
  explicit WakeablePoll(GuardedFd eventfd) noexcept : eventfd_(std::move(eventfd)) {}

  // Waits until an entry is ready, or until `until`, or until wake(). The first entry is this object's own.
  void wait(std::span<pollfd> entries, Deadline until) noexcept;
  void wake() noexcept;
  // Takes wake() back, after a wait that it ended.
  void clear() noexcept;

 private:
  const GuardedFd eventfd_;
};

class MachineThread {
 public:
  MachineThread() = default;
  // May throw std::system_error if no thread can be started.
  explicit MachineThread(std::function<void()> body) {
    if (simulated_machine != nullptr) [[unlikely]] {
      fiber_ = simulated_machine->start(std::move(body));
    } else {
      thread_ = std::thread(std::move(body));
    }
  }
  void join() {
    if (simulated_machine != nullptr) [[unlikely]]
      return simulated_machine->join(fiber_);
    thread_.join();
  }

 private:
  std::thread thread_;
  std::uint64_t fiber_ = 0;
};

}  // namespace deltawire
