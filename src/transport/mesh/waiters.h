// The threads that wait for operations, and the time that they have.
#pragma once

#include <condition_variable>
#include <span>
#include <vector>

#include "transport/links/link.h"
#include "transport/mesh/operation_table.h"

namespace deltawire {

// A thread inside wait(), wait_any() or vote().
struct Waiter {
  Operation* operation;  // the one that counts: its peer is announced, and blamed at the deadline
  Deadline deadline;
  std::span<const Handle> others = {};  // any of these ends the wait too
  bool heeds_wake = false;
  Deadline began_at = Clock::now();
  Clock::duration span{};  // that the deadline left at first
  Deadline looked_at{};    // at the streams, after a deadline
  Deadline announce_at{};  // when to tell the others whom this rank waits for, and to ask who is there
  bool announced = false;
  int renewals = 0;            // for departures that others have to decide
  Deadline asked_at = kNever;  // when they were asked last
  std::condition_variable changed{};
};

class Waiters {
 public:
  // `operations` outlive it.
  explicit Waiters(const OperationTable& operations) noexcept : operations_(operations) {}
  Waiters(const Waiters&) = delete;
  Waiters& operator=(const Waiters&) = delete;

  // `waiter` waits from here on: it is notified when an operation of its ends. `others_announce` that they
  // wait: then it is announced soon. Where memory fails, it doesn't wait.
  void add(Waiter& waiter, bool others_announce);
  void remove(Waiter& waiter) noexcept;

  bool has_ended(const Waiter& waiter) const noexcept;
  // The longest-waiting first.
  std::span<Waiter* const> all() const noexcept { return waiters_; }
  // Visits the operations that end the wait besides the one that counts.
  template <class Visit>
  void each_other(const Waiter& waiter, Visit visit) const {
    for (const Handle other : waiter.others) visit(*operations_.find(other));
  }
  void notify_all() noexcept;

  // Ends the wait_any that is running, or else the next one.
  void wake() noexcept;
  // wait_any has ended, and the wake with it.
  void take_wake() noexcept { wake_due_ = false; }

  // A rank has departed: every wait gets its time again, as long as the longest wait before.
  void renew_all(Deadline now);
  // One alone does, and whoever begins to wait.
  void renew(Waiter& waiter, Deadline now) noexcept;

 private:
  void set_changed(const Waiter& waiter, std::condition_variable* changed) noexcept;
  void extend_to_renewal(Waiter& waiter, Deadline now) noexcept;

  const OperationTable& operations_;
  std::vector<Waiter*> waiters_;
  bool wake_due_ = false;  // wake() was called; the next wait_any takes it
  Clock::duration longest_wait_{};
  Deadline renewed_until_{};  // no wait ends before
};

}  // namespace deltawire
