// Decides which thread drives the streams, that is, polls all of them and does what can be done.
//
// A thread that waits for an operation drives: it has nothing else to do, and then no other thread has to
// wake it. While none waits, the I/O thread drives. A driver sleeps in ppoll and never spins.
//
// Thread rule: every member is called under the mesh's lock.
#pragma once

#include <algorithm>
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
  void add(Waiter& waiter, bool others_announce) {
    assert(waiter.operation != nullptr && waiter.operation->waiter == nullptr);
    waiter.span = span_of(waiter);
    longest_wait_ = std::max(longest_wait_, std::min<Clock::duration>(waiter.span, kLongestRenewal));
    if (waiter.deadline < renewed_until_) {
      waiter.deadline = renewed_until_;
      waiter.span = span_of(waiter);
    }
    waiter.announce_at = waiter.began_at + waiter.span / 2;
    if (others_announce) {
      waiter.announce_at = std::min(waiter.announce_at, waiter.began_at + kPromptAnnouncement);
    }
    waiters_.push_back(&waiter);
    set_changed(waiter, &waiter.changed);
  }

  void remove(Waiter& waiter) noexcept {
    set_changed(waiter, nullptr);
    assert(std::ranges::count(waiters_, &waiter) == 1);
    std::erase(waiters_, &waiter);
  }

  bool has_ended(const Waiter& waiter) const noexcept {
    return waiter.operation->done || (waiter.heeds_wake && wake_due_) ||
           std::ranges::any_of(waiter.others, [this](Handle other) { return operations_.find(other)->done; });
  }

  // The longest-waiting first.
  std::span<Waiter* const> all() const noexcept { return waiters_; }
  // Visits the other operations that end the wait.
  void each_other(const Waiter& waiter, auto visit) const {
    for (const Handle other : waiter.others) visit(*operations_.find(other));
  }

  void notify_all() noexcept {
    for (Waiter* waiter : waiters_) waiter->changed.notify_all();
  }

  // Ends the running wait_any or, if there is none, the next one.
  void wake() noexcept {
    wake_due_ = true;
    for (Waiter* waiter : waiters_) {
      if (waiter->heeds_wake) waiter->changed.notify_one();
    }
  }

  // wait_any has ended, and the wake with it.
  void take_wake() noexcept { wake_due_ = false; }

  // A rank has departed: every wait is extended, by as long as the longest wait so far.
  void renew_all(Deadline now) {
    renewed_until_ = now + longest_wait_;
    for (Waiter* waiter : waiters_) extend_to_renewal(*waiter, now);
  }

  // Extends only this wait, and those that begin later.
  void renew(Waiter& waiter, Deadline now) noexcept {
    renewed_until_ = now + longest_wait_;
    extend_to_renewal(waiter, now);
  }

 private:
  // While others are already announcing, a wait that lasts this long is announced, too.
  static constexpr std::chrono::milliseconds kPromptAnnouncement{20};
  // A departure extends other waits by no more than this, however long this rank has waited before.
  static constexpr std::chrono::hours kLongestRenewal{24};

  static Clock::duration span_of(const Waiter& waiter) noexcept {
    return std::max(waiter.deadline - waiter.began_at, Clock::duration{0});
  }

  void set_changed(const Waiter& waiter, Condition* changed) noexcept {
    waiter.operation->waiter = changed;
    for (const Handle other : waiter.others) {
      assert(operations_.find(other) != nullptr);
      operations_.find(other)->waiter = changed;
    }
  }

  void extend_to_renewal(Waiter& waiter, Deadline now) noexcept {
    if (waiter.deadline >= renewed_until_) return;
    waiter.deadline = renewed_until_;
    waiter.announced = false;
    waiter.asked_at = kNever;
    waiter.announce_at = now + longest_wait_ / 2;
  }

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
  Driver(GuardedFd wake, std::size_t entries, const Waiters& waiters)
      : poll_(std::move(wake)), waiters_(waiters) {
    io_poller_.entries.resize(1 + entries, pollfd{-1, 0, 0});
    waiter_poller_.entries = io_poller_.entries;
  }

  // The I/O thread's loop: drives while no waiter does, until work.may_end().
  void run(Lock& lock, Work& work) noexcept {
    assert(lock.owns_lock());
    while (!work.may_end()) {
      if (driver_ != nullptr || MachineClock::now() < rests_until_) {
        rest(lock);
      } else {
        round(lock, work, io_poller_, kNever);
      }
    }
  }

  // A waiter begins to wait: it drives, unless another waiter does.
  void take_over(Waiter& waiter) noexcept {
    if (driver_ != nullptr) return;
    driver_ = &waiter;
    drives_since_ = MachineClock::now();
  }

  bool is_driven_by(const Waiter& waiter) const noexcept { return driver_ == &waiter; }
  // One round of the driving waiter: waits until something can be done, or until `until`, and does it.
  void drive(Lock& lock, Work& work, Deadline until) noexcept {
    assert(driver_ != nullptr);
    round(lock, work, waiter_poller_, until);
  }
  // The driving waiter stops. `at_once`: the I/O thread has something to do now.
  void hand_back(bool at_once) noexcept {
    assert(driver_ != nullptr);
    driver_ = nullptr;
    rests_until_ = at_once ? Deadline{} : MachineClock::now() + kComeback;
    // If it polls, it does so for an older set of entries, from before this waiter took over.
    if (at_once || io_poller_.polling) {
      wake();
    } else if (rests_deeply_) {
      io_turn_.notify_one();
    }
  }

  // There is something new to poll for. Wakes the driver if it sleeps or is about to; otherwise it will see
  // the change by itself.
  void wake() noexcept {
    if (wake_polling() || driver_ != nullptr) return;
    rests_until_ = {};
    io_turn_.notify_one();
  }

  // The same, but leaves a resting I/O thread alone. Returns whether any thread polls.
  bool wake_polling() noexcept {
    const Poller& poller = driver_ != nullptr ? waiter_poller_ : io_poller_;
    if (!poller.polling || woken_) return poller.polling;
    woken_ = true;
    poll_.wake();
    return true;
  }

  // Another thread may have completed what the driving waiter waits for.
  void tell() noexcept {
    if (driver_ != nullptr && waiters_.has_ended(*driver_)) wake_polling();
  }

  // All waits must check again whether they have ended.
  void tell_all() noexcept {
    if (driver_ != nullptr) wake_polling();
  }

 private:
  // A thread that has just waited may well wait again at once: for this long the I/O thread lets the waiter
  // keep driving.
  static constexpr std::chrono::microseconds kComeback{500};
  // After a drive of this length the I/O thread no longer checks whether the driver is still there.
  static constexpr std::chrono::milliseconds kLongDrive{4};

  struct Poller {
    std::vector<pollfd> entries;  // the poll's own, then the work's
    bool polling = false;
  };

  // Waking this thread costs the driver more than letting this thread look now and then, but only at first.
  void rest(Lock& lock) {
    const Deadline now = MachineClock::now();
    if (driver_ == nullptr) {
      io_turn_.wait_until(lock, rests_until_);
    } else if (now < drives_since_ + kLongDrive) {
      io_turn_.wait_until(lock, now + kComeback);
    } else {
      rests_deeply_ = true;
      io_turn_.wait(lock);
      rests_deeply_ = false;
    }
  }

  void round(Lock& lock, Work& work, Poller& poller, Deadline until) noexcept {
    const std::span<pollfd> entries = std::span(poller.entries).subspan(1);
    assert(lock.owns_lock() && !poller.polling);
    const Deadline wake_at = std::min(until, work.prepare(entries));
    poller.polling = true;
    lock.unlock();
    poll_.wait(poller.entries, wake_at);
    lock.lock();
    poller.polling = false;
    // A waiter may have taken over meanwhile.
    if (driver_ != nullptr && &poller == &io_poller_) return;
    if (poller.entries[0].revents != 0) poll_.clear();
    woken_ = false;
    work.serve(lock, entries);
  }

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
