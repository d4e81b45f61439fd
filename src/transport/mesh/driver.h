// Who drives the streams: polls for all of them, and does what can be done.
//
// A thread that waits for an operation drives, as it has nothing better to do, and nobody then has to wake
// it; while none waits, the I/O thread does. A driver sleeps in ppoll and never spins.
//
// Thread rule: every member is called under the mesh's lock.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include <poll.h>

#include "transport/mesh/waiters.h"
#include "transport/process/fork_guard.h"

namespace deltawire {

class Driver {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // What there is to drive.
  class Work {
   public:
    virtual ~Work() = default;
    // Says what to poll for, and until when at most. `entries` are for it alone, and as it left them.
    virtual Deadline prepare(std::span<pollfd> entries) noexcept = 0;
    // Does what can be done.
    virtual void serve(Lock& lock, std::span<const pollfd> entries) noexcept = 0;
    // The I/O thread is no longer needed.
    virtual bool may_end() = 0;
  };

  // `wake` is an eventfd; `entries` is how many the work needs.
  Driver(GuardedFd wake, std::size_t entries, const Waiters& waiters);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Of the I/O thread: drives while no waiter does, until work.may_end().
  void run(Lock& lock, Work& work) noexcept;

  // Of a waiter that begins: it drives, unless another does.
  void take_over(Waiter& waiter) noexcept;
  bool is_driven_by(const Waiter& waiter) const noexcept { return driver_ == &waiter; }
  // One round of the waiter that drives: waits until something can be done, or until `until`, and does it.
  void drive(Lock& lock, Work& work, Deadline until) noexcept { round(lock, work, waiter_poller_, until); }
  // The waiter that drives ends. `at_once`: the I/O thread has something to do.
  void hand_back(bool at_once) noexcept;

  // There is something new to poll for. Only a driver that sleeps, or is about to, needs to be woken;
  // otherwise it sees the news by itself.
  void wake() noexcept;
  // Likewise where the I/O thread may go on resting. Whether anybody polls.
  bool wake_polling() noexcept;
  // What a driving waiter waits for may have ended by another thread's doing.
  void tell() noexcept;
  // All waits have to look again.
  void tell_all() noexcept;

 private:
  struct Poller {
    std::vector<pollfd> entries;  // the eventfd, then those of the work
    bool polling = false;
  };

  void rest(Lock& lock);
  void round(Lock& lock, Work& work, Poller& poller, Deadline until) noexcept;

  const GuardedFd wake_;
  const Waiters& waiters_;
  Poller io_poller_;
  Poller waiter_poller_;
  Waiter* driver_ = nullptr;         // nullptr: the I/O thread drives, or will when it has rested
  Deadline rests_until_{};           // the I/O thread, after the driver has left
  bool rests_deeply_ = false;        // until it is told
  Deadline drives_since_{};          // the driver
  std::condition_variable io_turn_;  // for the I/O thread
  bool woken_ = false;               // and has not read the eventfd yet
};

}  // namespace deltawire
