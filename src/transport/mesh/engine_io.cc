#include <algorithm>
#include <utility>

#include <unistd.h>

#include "transport/mesh/engine.h"

namespace deltawire {
namespace {

constexpr std::chrono::milliseconds kFlushCheck{1};
// After so long a wait the I/O thread no longer looks whether the driver is still there.
constexpr std::chrono::milliseconds kLongDrive{4};

// Hang-ups and errors count: only reading or writing tells which it is.
bool is_ready(const pollfd& entry) noexcept {
  return entry.fd >= 0 && entry.revents != 0;
}

}  // namespace

void Engine::run() noexcept {
  Lock lock(mutex_);
  while (!may_leave()) {
    if (driver_ != nullptr || Clock::now() < rests_until_) {
      rest(lock);
    } else {
      turn(lock, io_poller_, kNever);
    }
  }
}

// Waking this thread costs the driver more than this thread's looking now and then; but not for ever.
void Engine::rest(Lock& lock) {
  const Deadline now = Clock::now();
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

void Engine::take_over(Waiter& waiter) noexcept {
  driver_ = &waiter;
  drives_since_ = Clock::now();
}

void Engine::hand_back() noexcept {
  driver_ = nullptr;
  // This waiter is still one of them.
  const bool at_once = failure_ || waiters_.size() > 1 || is_midway();
  rests_until_ = at_once ? Deadline{} : Clock::now() + kComeback;
  // If it polls, then for what was to be done before this waiter took over.
  if (at_once || io_poller_.polling) {
    wake_driver();
  } else if (rests_deeply_) {
    io_turn_.notify_one();
  }
}

// Whether there is more to move than what small messages leave behind.
bool Engine::is_midway() const noexcept {
  return std::ranges::any_of(peers_, [](const auto& peer) {
    return peer && (peer->wants_send() || peer->receiver.is_midway() || peer->control.has_unsent());
  });
}

// One round of a driver: waits until something can be done, or until `until`, and does it.
void Engine::turn(Lock& lock, Poller& poller, Deadline until) noexcept {
  const Deadline wake_at = std::min(until, prepare_poll(poller));
  poller.polling = true;
  lock.unlock();
  poll_until(poller, wake_at);
  lock.lock();
  poller.polling = false;
  // A waiter may have taken over meanwhile.
  if (driver_ != nullptr && &poller == &io_poller_) return;
  or_fail([&] {
    serve_all(lock, poller);
    early_blocks_.reserve(step_blocks_);
  });
}

Deadline Engine::prepare_poll(Poller& poller) {
  poller.entries[0] = {wake_.get(), POLLIN, 0};
  Deadline wake_at = leaving_ ? std::min(leave_by_, Clock::now() + kFlushCheck) : kNever;
  if (is_untold()) wake_at = std::min(wake_at, Clock::now() + kMemoryPause);
  if (failure_ && !has_concluded()) wake_at = std::min(wake_at, settle_by_);
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    std::ranges::fill(polls_of(poller, i), pollfd{-1, 0, 0});
    if (peers_[i]) wake_at = std::min(wake_at, prepare_peer(*peers_[i], polls_of(poller, i)));
  }
  return wake_at;
}

Engine::PeerPolls Engine::polls_of(Poller& poller, std::size_t rank) noexcept {
  return PeerPolls(poller.entries.data() + 1 + kPollEntries * rank, kPollEntries);
}

// An entry that waits for nothing is left out: a hang-up would make the poll return for ever.
Deadline Engine::prepare_peer(Peer& peer, PeerPolls polls) {
  if (peer.loss) {
    if (peer.control.has_unsent()) polls[kControlOut] = {peer.control.link().send_fd(), POLLOUT, 0};
    return kNever;
  }
  if (peer.control.end() == ControlStream::End::kOpen) {
    if (peer.control.read_at() == kNever) polls[kControlIn] = {peer.control.link().fd(), POLLIN, 0};
    if (peer.control.has_unsent()) polls[kControlOut] = {peer.control.link().send_fd(), POLLOUT, 0};
  }
  if (failure_) return peer.control.read_at();
  Deadline wake_at = std::min({peer.pump_at, peer.verdict_at, peer.control.read_at()});
  if (peer.receive_paused) {
    wake_at = std::min(wake_at, peer.receive_at);
  } else if (peer.wants_receive()) {
    if (peer.receiving) {
      peer.is_left_out = true;
    } else if (peer.receive_again) {
      return Deadline{};
    } else if (peer.receive_at == kNever) {
      polls[kDataIn] = {peer.data->fd(), POLLIN, 0};
    } else {
      wake_at = std::min(wake_at, peer.receive_at);
    }
  }
  if (peer.wants_send()) {
    if (peer.sending) {
      peer.is_left_out = true;
    } else if (peer.send_at == kNever) {
      polls[kDataOut] = {peer.data->send_fd(), POLLOUT, 0};
    } else {
      wake_at = std::min(wake_at, peer.send_at);
    }
  }
  return wake_at;
}

void Engine::poll_until(Poller& poller, Deadline wake_at) {
  timespec timeout{};
  if (wake_at != kNever) {
    const auto left = std::max(wake_at - Clock::now(), Clock::duration{0});
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    timeout.tv_sec = static_cast<time_t>(seconds.count());
    timeout.tv_nsec = static_cast<long>(std::chrono::nanoseconds(left - seconds).count());
  }
  // An interrupted or failed poll reads as "nothing ready"; the loop comes back to it.
  std::vector<pollfd>& entries = poller.entries;
  if (::ppoll(entries.data(), entries.size(), wake_at == kNever ? nullptr : &timeout, nullptr) < 0) {
    for (pollfd& entry : entries) entry.revents = 0;
  }
}

void Engine::serve_all(Lock& lock, Poller& poller) {
  if (is_ready(poller.entries[0])) {
    std::uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof count);
  }
  woken_ = false;
  if (is_untold()) tell_late();
  // Links that share a token bucket would starve behind the first one without the rotation.
  first_served_ = (first_served_ + 1) % peers_.size();
  for (std::size_t k = 0; k < peers_.size(); ++k) {
    const std::size_t i = (first_served_ + k) % peers_.size();
    if (peers_[i]) serve(lock, *peers_[i], polls_of(poller, i));
  }
  count_ballots();
  give_up_waiting();
}

void Engine::serve(Lock& lock, Peer& peer, PeerPolls polls) {
  if (is_ready(polls[kControlIn]) || peer.control.read_at() <= Clock::now()) read_control(peer);
  if (is_ready(polls[kControlOut])) peer.control.flush();
  if (failure_ || peer.loss) return;
  const Deadline now = Clock::now();
  if (peer.receive_paused && peer.receive_at <= now) {
    peer.receive_paused = false;
    peer.receive_again = true;
  }
  if (peer.wants_receive() && (peer.receive_again || is_ready(polls[kDataIn]) || peer.receive_at <= now)) {
    receive_data(lock, peer);
  }
  if (!failure_ && peer.pump_at <= now) peer.pump_at = peer.data->pump();
  if (!failure_ && peer.wants_send() && (is_ready(polls[kDataOut]) || peer.send_at <= now)) {
    send_data(lock, peer);
  }
  if (!failure_ && peer.verdict_at <= now) fail_lost(peer, peer.stream_error);
}

void Engine::send_data(Lock& lock, Peer& peer) {
  if (peer.sending) return;  // and goes on with what others post
  peer.sending = true;
  const StreamStep step = peer.sender.step(peer.unlocker(lock, calls_in_kernel_));
  peer.sending = false;
  poll_again(peer);
  tell_driver();
  if (failure_ || peer.loss) return;
  peer.send_at = step.retry_at;
  peer.pump_at = peer.data->pump();
  if (step.kind == StreamStep::Kind::kClosed) {
    peer.send_ended = true;
    on_data_lost(peer, step.error);
  }
}

void Engine::receive_data(Lock& lock, Peer& peer) {
  if (peer.receiving) return;
  peer.receiving = true;
  StreamStep step = peer.receiver.step(peer.unlocker(lock, calls_in_kernel_));
  peer.receiving = false;
  poll_again(peer);
  tell_driver();
  if (failure_ || peer.loss) return;
  peer.receive_at = step.retry_at;
  peer.receive_again = false;
  switch (step.kind) {
    case StreamStep::Kind::kMoved:
    case StreamStep::Kind::kIdle: return;
    case StreamStep::Kind::kPaused: peer.receive_paused = true; return;
    case StreamStep::Kind::kClosed:
      peer.receive_ended = true;
      on_data_lost(peer, step.error);
      return;
    case StreamStep::Kind::kFailed: blame(peer, std::move(step.failure)); return;
  }
}

// While one thread sends or receives, the driver doesn't poll for the same.
void Engine::poll_again(Peer& peer) noexcept {
  if (std::exchange(peer.is_left_out, false)) wake_polling();
}

// There is something new to poll for. Only a driver that sleeps, or is about to, needs to be woken; otherwise
// it sees the news by itself.
void Engine::wake_driver() noexcept {
  if (wake_polling() || driver_ != nullptr) return;
  rests_until_ = {};
  io_turn_.notify_one();
}

bool Engine::wake_polling() noexcept {
  const Poller& poller = driver_ != nullptr ? waiter_poller_ : io_poller_;
  if (!poller.polling || woken_) return poller.polling;
  woken_ = true;
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  return true;
}

// What a driving waiter waits for may have ended by another thread's doing.
void Engine::tell_driver() noexcept {
  if (driver_ != nullptr && has_ended(*driver_)) wake_polling();
}

bool Engine::may_leave() {
  if (!leaving_) return false;
  const bool overdue = Clock::now() >= leave_by_;
  if (!farewell_said_) {
    bool sending = false;
    each_peer([&sending](Peer& peer) { sending = sending || (peer.wants_send() && !peer.said_goodbye); });
    if (sending && !failure_ && !overdue) return false;
    if (!failure_) broadcast(Goodbye{agreement_.decided()});
    farewell_said_ = true;
  }
  return overdue || (!is_untold() && all_flushed());
}

bool Engine::all_flushed() {
  bool flushed = true;
  each_peer([&](Peer& peer) {
    if (peer.control.end() != ControlStream::End::kOpen || peer.loss) return;
    if (peer.control.has_unsent() || !peer.control.link().delivered()) flushed = false;
    if (failure_ || peer.said_goodbye || peer.send_ended) return;
    if (peer.pump_at != kNever || !peer.data->delivered()) flushed = false;
  });
  return flushed;
}

}  // namespace deltawire
