// The threads that wait for operations, and their deadlines.
#pragma once

#include <span>
#include <vector>

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

}  // namespace deltawire
