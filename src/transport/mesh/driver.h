// Decides which thread drives the streams, that is, polls all of them and does what can be done.
//
// A thread that waits for an operation drives: it has nothing else to do, and then no other thread has to
// wake it. While none waits, the I/O thread drives. A driver sleeps in ppoll and never spins.
//
// Thread rule: every member is called under the mesh's lock.
#pragma once

#include <cassert>
#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include <poll.h>

#include "transport/links/link.h"
#include "transport/mesh/operation.h"
#include "transport/process/machine.h"

namespace deltawire {

// A thread inside wait(), wait_any() or vote().
struct Waiter {
  Operation* operation;  // its peer is announced, and blamed at the deadline
  Deadline deadline;
  std::span<const Handle> others = {};  // any of these ends the wait, too
  bool heeds_wake = false;
  Deadline began_at = MachineClock::now();
  Clock::duration span{};  // the time from the beginning to the first deadline
  Deadline looked_at{};    // when it last read the streams after a deadline
  Deadline announce_at{};  // when to tell the others whom this rank waits for, and to ask who is alive
  bool announced = false;
  int renewals = 0;            // how often it was extended for departures that others decide
  Deadline asked_at = kNever;  // when the others were last asked
  int circles = 0;             // how often it was extended for what others may know; 2: no more
  Condition changed{};
};

class Waiters {
 public:
  // `operations` must outlive it.
  explicit Waiters(const OperationTable& operations) noexcept : operations_(operations) {}
  Waiters(const Waiters&) = delete;
  Waiters& operator=(const Waiters&) = delete;

  // Adds a waiter, which is notified when one of its operations ends. `others_announce`: other ranks have
  // announced waits, so this one is announced soon. If an allocation fails, it is not added.
  void add(Waiter& waiter, bool others_announce);
  void remove(Waiter& waiter) noexcept;

  bool has_ended(const Waiter& waiter) const noexcept;
  // The longest-waiting first.
  std::span<Waiter* const> all() const noexcept { return waiters_; }
  // Visits the other operations that end the wait.
  void each_other(const Waiter& waiter, auto visit) const {
    for (const Handle other : waiter.others) visit(*operations_.find(other));
  }
  void notify_all() noexcept;

  // Ends the running wait_any or, if there is none, the next one.
  void wake() noexcept;
  // wait_any has ended, and the wake with it.
  void take_wake() noexcept { wake_due_ = false; }

  // A rank has departed: every wait is extended, by as long as the longest wait so far.
  void renew_all(Deadline now);
  // Extends only this wait, and those that begin later.
  void renew(Waiter& waiter, Deadline now) noexcept;

 private:
  void set_changed(const Waiter& waiter, Condition* changed) noexcept;
  void extend_to_renewal(Waiter& waiter, Deadline now) noexcept;

  const OperationTable& operations_;
  std::vector<Waiter*> waiters_;
  bool wake_due_ = false;  // wake() was called; the next wait_any takes it
  Clock::duration longest_wait_{};
  Deadline renewed_until_{};  // no deadline is earlier
};

class Driver {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // The work that a driver does.
  class Work {
   public:
    virtual ~Work() = default;
    // Fills in what to poll for, and returns until when. Nobody else changes `entries` between two calls.
    virtual Deadline prepare(std::span<pollfd> entries) noexcept = 0;
    // Does what can be done.
    virtual void serve(Lock& lock, std::span<const pollfd> entries) noexcept = 0;
    // Whether the I/O thread is no longer needed.
    virtual bool may_end() = 0;
  };

  // `wake` is an eventfd, empty in a simulation; `entries` is how many the work needs.
  Driver(GuardedFd wake, std::size_t entries, const Waiters& waiters);

  // The I/O thread's loop: drives while no waiter does, until work.may_end().
  void run(Lock& lock, Work& work) noexcept;

  // A waiter begins to wait: it drives, unless another waiter does.
  void take_over(Waiter& waiter) noexcept;
  bool is_driven_by(const Waiter& waiter) const noexcept { return driver_ == &waiter; }
  // One round of the driving waiter: waits until something can be done, or until `until`, and does it.
  void drive(Lock& lock, Work& work, Deadline until) noexcept {
    assert(driver_ != nullptr);
    round(lock, work, waiter_poller_, until);
  }
  // The driving waiter stops. `at_once`: the I/O thread has something to do now.
  void hand_back(bool at_once) noexcept;

  // There is something new to poll for. Wakes the driver if it sleeps or is about to; otherwise it will see
  // the change by itself.
  void wake() noexcept;
  // The same, but leaves a resting I/O thread alone. Returns whether any thread polls.
  bool wake_polling() noexcept;
  // Another thread may have completed what the driving waiter waits for.
  void tell() noexcept;
  // All waits must check again whether they have ended.
  void tell_all() noexcept;

 private:
  struct Poller {
    std::vector<pollfd> entries;  // the poll's own, then the work's
    bool polling = false;
  };

  void rest(Lock& lock);
  void round(Lock& lock, Work& work, Poller& poller, Deadline until) noexcept;

  WakeablePoll poll_;
  const Waiters& waiters_;
  Poller io_poller_;
  Poller waiter_poller_;
  Waiter* driver_ = nullptr;   // nullptr: the I/O thread drives, or will when it has rested
  Deadline rests_until_{};     // how long the I/O thread rests after the driver has left
  bool rests_deeply_ = false;  // the I/O thread rests until it is notified
  Deadline drives_since_{};    // when the driver began
  Condition io_turn_;          // notifies the I/O thread
  bool woken_ = false;         // the poll was woken, and that is not cleared yet
};

}  // namespace deltawire
