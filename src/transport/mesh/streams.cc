#include "transport/mesh/streams.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <new>
#include <utility>
#include <variant>

#include "transport/process/machine.h"

namespace deltawire {

void ControlReader::read(Peer& peer) {
  if (peer.is_gone) return;
  peer.control.begin_reading();
  try {
    while (const ControlMessage* message = peer.control.front()) {
      peer.heard_at = MachineClock::now();
      on_message(peer, *message);
      peer.control.pop();
      if (peer.is_gone) return;
    }
    if (peer.control.end() == ControlStream::End::kOpen) return;
    on_end(peer);
    peer.is_gone = true;
  } catch (const std::bad_alloc&) {
    peer.control.postpone();
    driver_.wake();
    throw;
  }
}

void ControlReader::read_all() {
  peers_.each([this](Peer& peer) { read(peer); });
  count_ballots();
}

void ControlReader::count_ballots() {
  if (!consensus_.may_count()) return;
  peers_.each([this](Peer& peer) { read(peer); });
  consensus_.count();
}

void ControlReader::give_up_waiting() {
  const Deadline settle_by = consensus_.settle_by();
  if (settle_by == kNever || MachineClock::now() < settle_by) return;
  // This rank itself may have been frozen.
  peers_.each([this](Peer& peer) { read(peer); });
  consensus_.give_up_waiting();
}

void ControlReader::on_message(Peer& peer, const ControlMessage& message) {
  if (const auto* vote = std::get_if<Vote>(&message)) return consensus_.receive(peer, *vote);
  if (const auto* round = std::get_if<SettleRound>(&message)) return consensus_.receive(peer, *round);
  if (const auto* verdict = std::get_if<Verdict>(&message)) return consensus_.receive(peer, *verdict);
  if (const auto* abort = std::get_if<Abort>(&message)) return on_abort(peer, *abort);
  if (const auto* waiting = std::get_if<Waiting>(&message)) return on_waiting(peer, *waiting);
  if (const auto* start = std::get_if<Start>(&message)) return on_start(peer, *start);
  if (const auto* goodbye = std::get_if<Goodbye>(&message)) return on_goodbye(peer, *goodbye);
  if (const auto* dropped = std::get_if<Dropped>(&message)) return membership_.on_dropped(peer, *dropped);
  const auto& here = std::get<Here>(message);
  peer.place = here.place;
  peer.deaf = here.deaf;
}

void ControlReader::on_end(Peer& peer) {
  consensus_.on_gone(peer.rank);
  if (consensus_.failed()) return;
  if (peer.control.end() == ControlStream::End::kDamaged) {
    membership_.blame(peer, {ErrorCode::kCorrupt,
                             "control stream from " + peers_.name(peer.rank) +
                                 " is damaged; check the network and its machine",
                             peer.rank});
  } else if (!peer.said_goodbye) {
    judge_.blame_broken(peer, peer.control.error() == EBADMSG ? EBADMSG : peer.stream_error);
  }
}

void ControlReader::on_goodbye(Peer& peer, const Goodbye& goodbye) {
  peer.said_goodbye = true;
  peer.verdict_at = kNever;
  announcer_.on_gone(peer.rank);
  consensus_.on_left(peer.rank, goodbye.decided);
  consensus_.notify_waiters();
}

void ControlReader::on_abort(Peer& peer, const Abort& abort) {
  if (consensus_.failed()) return;
  // A peer that names this rank as the origin can't know better than this rank: then the peer is the origin.
  const int origin = abort.origin < 0 || abort.origin == peers_.self() ? peer.rank : abort.origin;
  Error error = abort.error;
  if (!peers_.names().has(error.suspect, peers_.world_size())) error.suspect = origin;
  if (error.message.empty()) error.message = "a failure, and gives no reason";
  if (!peer.is_optional) return consensus_.fail(std::move(error), origin);
  // It may pass on a report about another rank; but required ranks get such reports themselves, and decide.
  membership_.drop(peer, peers_.names().reported(peer.rank, std::move(error)));
}

namespace {

// How often a leaving rank checks whether everything is flushed.
constexpr std::chrono::milliseconds kFlushCheck{1};

// Hang-ups and errors count as ready: reading or writing will report them.
bool is_ready(const pollfd& entry) noexcept {
  return entry.fd >= 0 && entry.revents != 0;
}

}  // namespace

void Streams::post_send(Lock& lock, Peer& peer, Operation& message) {
  assert(lock.owns_lock() && !consensus_.failed());
  const bool idle = peer.sender.empty();
  peer.sender.post(message);
  // Nothing is queued before it: sending from here avoids the detour through another thread.
  if (idle && peer.wants_send()) {
    consensus_.or_fail([&] { send(lock, peer); });
  }
  if ((peer.wants_send() && !peer.sending) || peer.pump_at != kNever) driver_.wake();
}

void Streams::post_receive(Lock& lock, Peer& peer, Operation& message) {
  assert(lock.owns_lock() && !consensus_.failed());
  StreamStep step = peer.receiver.post(message);
  if (step.kind == StreamStep::Kind::kFailed) {
    membership_.blame(peer, std::move(step.failure));
  } else if (peer.receive_paused) {
    // The message in the stream may be the one for this receive: taking it here avoids waking the driver.
    peer.receive_paused = false;
    if (peer.wants_receive()) consensus_.or_fail([&] { receive(lock, peer); });
    driver_.wake_polling();
  }
}

Deadline Streams::prepare(std::span<pollfd> entries) noexcept {
  assert(entries.size() == entries_for(peers_.world_size()));
  std::ranges::fill(entries, pollfd{-1, 0, 0});
  Deadline wake_at = is_leaving_ ? std::min(leave_by_, MachineClock::now() + kFlushCheck) : kNever;
  if (consensus_.is_untold())
    wake_at = std::min(wake_at, MachineClock::now() + AgreementProtocol::kMemoryPause);
  wake_at = std::min(wake_at, consensus_.settle_by());
  peers_.each([&](Peer& peer) {
    wake_at = std::min(wake_at, prepare_peer(peer, entries.subspan(entries_for(peer.rank), kPollEntries)));
  });
  return wake_at;
}

// An entry that waits for nothing is left out: after a hang-up, poll would always return at once.
Deadline Streams::prepare_peer(Peer& peer, std::span<pollfd> entries) {
  if (peer.departure) {
    if (peer.control.has_unsent()) entries[kControlOut] = {peer.control.link().send_fd(), POLLOUT, 0};
    return kNever;
  }
  if (peer.control.end() == ControlStream::End::kOpen) {
    if (peer.control.read_at() == kNever) entries[kControlIn] = {peer.control.link().fd(), POLLIN, 0};
  }
  if (peer.control.has_unsent()) entries[kControlOut] = {peer.control.link().send_fd(), POLLOUT, 0};
  if (consensus_.failed()) return peer.control.read_at();
  return std::min(peer.control.read_at(), prepare_data(peer, entries));
}

Deadline Streams::prepare_data(Peer& peer, std::span<pollfd> entries) {
  Deadline wake_at = std::min(peer.pump_at, peer.verdict_at);
  if (peer.receive_paused) {
    wake_at = std::min(wake_at, peer.receive_at);
  } else if (peer.wants_receive()) {
    if (peer.receiving) {
      peer.is_left_out = true;
    } else if (peer.receive_again) {
      return Deadline{};
    } else if (peer.receive_at == kNever) {
      entries[kDataIn] = {peer.data->fd(), POLLIN, 0};
    } else {
      wake_at = std::min(wake_at, peer.receive_at);
    }
  }
  if (peer.wants_send()) {
    if (peer.sending) {
      peer.is_left_out = true;
    } else if (peer.send_at == kNever) {
      entries[kDataOut] = {peer.data->send_fd(), peer.data->send_events(), 0};
    } else {
      wake_at = std::min(wake_at, peer.send_at);
    }
  }
  return wake_at;
}

void Streams::serve(Lock& lock, std::span<const pollfd> entries) noexcept {
  assert(lock.owns_lock() && entries.size() == entries_for(peers_.world_size()));
  consensus_.or_fail([&] {
    if (consensus_.is_untold()) consensus_.tell_late();
    // Links that share a token bucket would starve behind the first one without the rotation.
    const int world_size = peers_.world_size();
    first_served_ = (first_served_ + 1) % world_size;
    for (int k = 0; k < world_size; ++k) {
      const int rank = (first_served_ + k) % world_size;
      if (peers_.has(rank)) {
        serve_peer(lock, peers_[rank], entries.subspan(entries_for(rank), kPollEntries));
      }
    }
    control_.count_ballots();
    control_.give_up_waiting();
    peers_.reserve_unexpected();
  });
}

void Streams::serve_peer(Lock& lock, Peer& peer, std::span<const pollfd> entries) {
  if (is_ready(entries[kControlIn]) || peer.control.read_at() <= MachineClock::now()) control_.read(peer);
  if (is_ready(entries[kControlOut])) peer.control.flush();
  if (consensus_.failed() || peer.departure) return;
  const Deadline now = MachineClock::now();
  if (peer.receive_paused && peer.receive_at <= now) {
    peer.receive_paused = false;
    peer.receive_again = true;
  }
  if (peer.wants_receive() && (peer.receive_again || is_ready(entries[kDataIn]) || peer.receive_at <= now)) {
    receive(lock, peer);
  }
  if (!consensus_.failed() && peer.pump_at <= now) peer.pump_at = peer.data->pump();
  if (!consensus_.failed() && peer.wants_send() && (is_ready(entries[kDataOut]) || peer.send_at <= now)) {
    send(lock, peer);
  }
  if (!consensus_.failed() && peer.verdict_at <= now) judge_.judge_silence(peer, now);
}

void Streams::send(Lock& lock, Peer& peer) {
  if (peer.sending) return;  // that thread continues with what others post
  peer.sending = true;
  const StreamStep step = peer.sender.step(peer.scoped_unlock(lock, calls_in_kernel_));
  peer.sending = false;
  poll_again(peer);
  driver_.tell();
  if (consensus_.failed() || peer.departure) return;
  peer.send_at = step.retry_at;
  peer.pump_at = peer.data->pump();
  if (step.kind == StreamStep::Kind::kClosed) {
    peer.send_ended = true;
    on_data_ended(peer, step.error);
  }
}

void Streams::receive(Lock& lock, Peer& peer) {
  if (peer.receiving) return;
  peer.receiving = true;
  StreamStep step = peer.receiver.step(peer.scoped_unlock(lock, calls_in_kernel_));
  peer.receiving = false;
  poll_again(peer);
  driver_.tell();
  if (consensus_.failed() || peer.departure) return;
  peer.receive_at = step.retry_at;
  peer.receive_again = step.retry_at == kNever && peer.data->holds_received();
  peer.pump_at = peer.data->pump();
  switch (step.kind) {
    case StreamStep::Kind::kMoved:
    case StreamStep::Kind::kIdle: return;
    case StreamStep::Kind::kPaused: peer.receive_paused = true; return;
    case StreamStep::Kind::kClosed:
      peer.receive_ended = true;
      on_data_ended(peer, step.error);
      return;
    case StreamStep::Kind::kFailed: membership_.blame(peer, std::move(step.failure)); return;
  }
}

void Streams::on_data_ended(Peer& peer, int error) {
  if (error != 0) peer.stream_error = error;
  // Read the peer's last messages first: if it aborted and left, it is not to blame.
  control_.read(peer);
  control_.count_ballots();
  if (consensus_.failed() || peer.departure) return;
  if (peer.said_goodbye) {
    consensus_.notify_waiters();
  } else if (peer.verdict_at == kNever) {
    judge_.let_explain(peer, MachineClock::now());
    driver_.wake();
  }
}

bool Streams::may_end() {
  if (!is_leaving_) return false;
  const bool overdue = MachineClock::now() >= leave_by_;
  if (!farewell_said_) {
    const bool sending =
        peers_.find([](const Peer& peer) { return peer.wants_send() && !peer.said_goodbye; }) != nullptr;
    if (sending && !consensus_.failed() && !overdue) return false;
    if (!consensus_.failed()) {
      consensus_.or_fail([this] { peers_.broadcast(Goodbye{consensus_.decided()}); });
    }
    farewell_said_ = true;
  }
  return overdue || (!consensus_.is_untold() && all_flushed());
}

// A peer that has not heard the goodbye asks when the data stream ends, and its question to a closed
// connection resets that: the goodbye, and the last ballot, are lost if their packet was lost before. So in
// good order they must be acknowledged. After a failure there may be nobody who does so.
bool Streams::all_flushed() {
  bool flushed = true;
  peers_.each([&](Peer& peer) {
    if (peer.control.end() == ControlStream::End::kClosed || peer.departure) return;
    if (peer.control.has_unsent() || !peer.control.link().delivered()) flushed = false;
    if (consensus_.failed() || peer.said_goodbye || peer.send_ended) return;
    if (peer.control.link().unacknowledged() > 0) flushed = false;
    if (peer.pump_at != kNever || !peer.data->delivered()) flushed = false;
  });
  return flushed;
}

}  // namespace deltawire
