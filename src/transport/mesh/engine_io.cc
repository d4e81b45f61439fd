#include <algorithm>
#include <exception>

#include <unistd.h>

#include "transport/mesh/engine.h"

namespace deltawire {
namespace {

constexpr std::chrono::milliseconds kFlushCheck{1};

// Hang-ups and errors count: only reading or writing tells which it is.
bool is_ready(const pollfd& entry) noexcept {
  return entry.fd >= 0 && entry.revents != 0;
}

}  // namespace

void Engine::run() noexcept {
  Lock lock(mutex_);
  while (true) {
    try {
      return loop(lock);
    } catch (const std::exception&) {
      if (!lock.owns_lock()) lock.lock();
      try {
        fail({ErrorCode::kNoMemory, "rank " + std::to_string(rank_) + " is out of memory", rank_}, rank_);
      } catch (const std::exception&) {
        fail_without_text(ErrorCode::kNoMemory);
      }
    }
  }
}

void Engine::loop(Lock& lock) {
  while (!may_leave()) {
    const Deadline wake_at = prepare_poll();
    polling_ = true;
    lock.unlock();
    poll_until(wake_at);
    lock.lock();
    polling_ = false;
    serve_all();
    early_blocks_.reserve(step_blocks_);
  }
}

Deadline Engine::prepare_poll() {
  polls_[0] = {wake_.get(), POLLIN, 0};
  Deadline wake_at = leaving_ ? std::min(leave_by_, Clock::now() + kFlushCheck) : kNever;
  if (is_untold()) wake_at = std::min(wake_at, Clock::now() + kMemoryPause);
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    std::ranges::fill(polls_of(i), pollfd{-1, 0, 0});
    if (peers_[i]) wake_at = std::min(wake_at, prepare_peer(*peers_[i], polls_of(i)));
  }
  return wake_at;
}

Engine::PeerPolls Engine::polls_of(std::size_t rank) noexcept {
  return PeerPolls(polls_.data() + 1 + kPollEntries * rank, kPollEntries);
}

// An entry that waits for nothing is left out: a hang-up would make the poll return for ever.
Deadline Engine::prepare_peer(Peer& peer, PeerPolls polls) {
  if (peer.control.end() == ControlStream::End::kOpen) {
    if (peer.control.read_at() == kNever) polls[kControlIn] = {peer.control.link().fd(), POLLIN, 0};
    if (peer.control.has_unsent()) polls[kControlOut] = {peer.control.link().send_fd(), POLLOUT, 0};
  }
  if (failure_) return peer.control.read_at();
  Deadline wake_at = std::min({peer.pump_at, peer.verdict_at, peer.control.read_at()});
  if (peer.wants_receive()) {
    if (peer.receive_again) return Deadline{};
    if (peer.receive_at == kNever) polls[kDataIn] = {peer.data->fd(), POLLIN, 0};
    wake_at = std::min(wake_at, peer.receive_at);
  }
  if (peer.wants_send()) {
    if (peer.send_at == kNever) polls[kDataOut] = {peer.data->send_fd(), POLLOUT, 0};
    wake_at = std::min(wake_at, peer.send_at);
  }
  return wake_at;
}

void Engine::poll_until(Deadline wake_at) {
  timespec timeout{};
  if (wake_at != kNever) {
    const auto left = std::max(wake_at - Clock::now(), Clock::duration{0});
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    timeout.tv_sec = static_cast<time_t>(seconds.count());
    timeout.tv_nsec = static_cast<long>(std::chrono::nanoseconds(left - seconds).count());
  }
  // An interrupted or failed poll reads as "nothing ready"; the loop comes back to it.
  if (::ppoll(polls_.data(), polls_.size(), wake_at == kNever ? nullptr : &timeout, nullptr) < 0) {
    for (pollfd& entry : polls_) entry.revents = 0;
  }
}

void Engine::serve_all() {
  if (is_ready(polls_[0])) {
    std::uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof count);
  }
  woken_ = false;
  if (is_untold()) tell_late();
  // Links that share a token bucket would starve behind the first one without the rotation.
  first_served_ = (first_served_ + 1) % peers_.size();
  for (std::size_t k = 0; k < peers_.size(); ++k) {
    const std::size_t i = (first_served_ + k) % peers_.size();
    if (peers_[i]) serve(*peers_[i], polls_of(i));
  }
}

void Engine::serve(Peer& peer, PeerPolls polls) {
  if (is_ready(polls[kControlIn]) || peer.control.read_at() <= Clock::now()) read_control(peer);
  if (is_ready(polls[kControlOut])) peer.control.flush();
  if (failure_) return;
  const Deadline now = Clock::now();
  if (peer.wants_receive() && (peer.receive_again || is_ready(polls[kDataIn]) || peer.receive_at <= now)) {
    receive_data(peer);
  }
  if (!failure_ && peer.pump_at <= now) peer.pump_at = peer.data->pump();
  if (!failure_ && peer.wants_send() && (is_ready(polls[kDataOut]) || peer.send_at <= now)) {
    send_data(peer);
  }
  if (!failure_ && peer.verdict_at <= now) fail_lost(peer, peer.stream_error);
}

void Engine::send_data(Peer& peer) {
  const StreamStep step = peer.sender.step();
  peer.send_at = step.retry_at;
  peer.pump_at = peer.data->pump();
  if (step.kind == StreamStep::Kind::kClosed) {
    peer.send_ended = true;
    on_data_lost(peer, step.error);
  }
}

void Engine::receive_data(Peer& peer) {
  StreamStep step = peer.receiver.step();
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
    case StreamStep::Kind::kFailed: fail(std::move(step.failure), rank_); return;
  }
}

// Only a thread that sleeps, or is about to, needs the wake-up; otherwise it sees the news by itself.
void Engine::wake_io_thread() noexcept {
  if (!polling_ || woken_) return;
  woken_ = true;
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
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
    if (peer.control.end() != ControlStream::End::kOpen) return;
    if (peer.control.has_unsent() || !peer.control.link().delivered()) flushed = false;
    if (failure_ || peer.said_goodbye || peer.send_ended) return;
    if (peer.pump_at != kNever || !peer.data->delivered()) flushed = false;
  });
  return flushed;
}

}  // namespace deltawire
