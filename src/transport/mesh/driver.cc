#include "transport/mesh/driver.h"

#include <algorithm>

namespace deltawire {
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
