#include "transport/mesh/driver.h"

#include <algorithm>

namespace deltawire {

namespace {

// While others are already announcing, a wait that lasts this long is announced, too.
constexpr std::chrono::milliseconds kPromptAnnouncement{20};
// A departure extends other waits by no more than this, however long this rank has waited before.
constexpr std::chrono::hours kLongestRenewal{24};

Clock::duration span_of(const Waiter& waiter) noexcept {
  return std::max(waiter.deadline - waiter.began_at, Clock::duration{0});
}

}  // namespace

void Waiters::add(Waiter& waiter, bool others_announce) {
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

void Waiters::remove(Waiter& waiter) noexcept {
  set_changed(waiter, nullptr);
  assert(std::ranges::count(waiters_, &waiter) == 1);
  std::erase(waiters_, &waiter);
}

void Waiters::set_changed(const Waiter& waiter, Condition* changed) noexcept {
  waiter.operation->waiter = changed;
  for (const Handle other : waiter.others) {
    assert(operations_.find(other) != nullptr);
    operations_.find(other)->waiter = changed;
  }
}

bool Waiters::has_ended(const Waiter& waiter) const noexcept {
  return waiter.operation->done || (waiter.heeds_wake && wake_due_) ||
         std::ranges::any_of(waiter.others, [this](Handle other) { return operations_.find(other)->done; });
}

void Waiters::notify_all() noexcept {
  for (Waiter* waiter : waiters_) waiter->changed.notify_all();
}

void Waiters::wake() noexcept {
  wake_due_ = true;
  for (Waiter* waiter : waiters_) {
    if (waiter->heeds_wake) waiter->changed.notify_one();
  }
}

void Waiters::renew_all(Deadline now) {
  renewed_until_ = now + longest_wait_;
  for (Waiter* waiter : waiters_) extend_to_renewal(*waiter, now);
}

void Waiters::renew(Waiter& waiter, Deadline now) noexcept {
  renewed_until_ = now + longest_wait_;
  extend_to_renewal(waiter, now);
}

void Waiters::extend_to_renewal(Waiter& waiter, Deadline now) noexcept {
  if (waiter.deadline >= renewed_until_) return;
  waiter.deadline = renewed_until_;
  waiter.announced = false;
  waiter.asked_at = kNever;
  waiter.announce_at = now + longest_wait_ / 2;
}

namespace {

// A thread that has just waited may well wait again at once: for this long the I/O thread lets the waiter
// keep driving.
constexpr std::chrono::microseconds kComeback{500};
// After a drive of this length the I/O thread no longer checks whether the driver is still there.
constexpr std::chrono::milliseconds kLongDrive{4};

}  // namespace

Driver::Driver(GuardedFd wake, std::size_t entries, const Waiters& waiters)
    : poll_(std::move(wake)), waiters_(waiters) {
  io_poller_.entries.resize(1 + entries, pollfd{-1, 0, 0});
  waiter_poller_.entries = io_poller_.entries;
}

void Driver::run(Lock& lock, Work& work) noexcept {
  assert(lock.owns_lock());
  while (!work.may_end()) {
    if (driver_ != nullptr || MachineClock::now() < rests_until_) {
      rest(lock);
    } else {
      round(lock, work, io_poller_, kNever);
    }
  }
}

// Waking this thread costs the driver more than letting this thread look now and then, but only at first.
void Driver::rest(Lock& lock) {
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

void Driver::take_over(Waiter& waiter) noexcept {
  if (driver_ != nullptr) return;
  driver_ = &waiter;
  drives_since_ = MachineClock::now();
}

void Driver::hand_back(bool at_once) noexcept {
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

void Driver::round(Lock& lock, Work& work, Poller& poller, Deadline until) noexcept {
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

void Driver::wake() noexcept {
  if (wake_polling() || driver_ != nullptr) return;
  rests_until_ = {};
  io_turn_.notify_one();
}

bool Driver::wake_polling() noexcept {
  const Poller& poller = driver_ != nullptr ? waiter_poller_ : io_poller_;
  if (!poller.polling || woken_) return poller.polling;
  woken_ = true;
  poll_.wake();
  return true;
}

void Driver::tell() noexcept {
  if (driver_ != nullptr && waiters_.has_ended(*driver_)) wake_polling();
}

void Driver::tell_all() noexcept {
  if (driver_ != nullptr) wake_polling();
}

}  // namespace deltawire
