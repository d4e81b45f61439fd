#include <algorithm>
#include <new>
#include <system_error>

#include "transport/mesh/engine.h"

namespace deltawire {
namespace {

// How long a peer whose data stream broke may take to explain itself on its control stream. A crash ends
// both at once, so this passes only if one connection alone was cut.
constexpr std::chrono::milliseconds kExplanationTime{200};

// Longer than an acknowledgement takes around the world.
constexpr std::chrono::milliseconds kDeafTime{200};

}  // namespace

std::string rank_name(int rank) {
  return "rank " + std::to_string(rank);
}

std::string reported(int by, const std::string& text) {
  const std::string name = rank_name(by);
  return text.starts_with(name + " ") ? text : name + " reports: " + text;
}

// Where memory fails, nothing that a peer has said is lost: it is heeded again, wholly, a little later.
void Engine::read_control(Peer& peer) {
  if (peer.is_lost) return;
  peer.control.begin_reading();
  try {
    while (const ControlMessage* message = peer.control.front()) {
      peer.heard_at = Clock::now();
      on_control(peer, *message);
      peer.control.pop();
      if (peer.is_lost) return;
    }
    if (peer.control.end() == ControlStream::End::kOpen) return;
    on_control_end(peer);
    peer.is_lost = true;
  } catch (const std::bad_alloc&) {
    peer.control.postpone();
    wake_driver();
    throw;
  }
}

void Engine::read_all_control() {
  each_peer([this](Peer& peer) { read_control(peer); });
  count_ballots();
}

void Engine::on_control_end(Peer& peer) {
  agree([&peer](Agreement& next) { next.on_lost(peer.rank); });
  if (failure_) return;
  if (peer.control.end() == ControlStream::End::kDamaged) {
    blame(peer,
          {ErrorCode::kCorrupt,
           "control stream from " + rank_name(peer.rank) + " is damaged; check the network and its machine",
           peer.rank});
  } else if (!peer.said_goodbye) {
    fail_lost(peer, peer.stream_error);
  }
}

void Engine::on_control(Peer& peer, const ControlMessage& message) {
  if (const auto* vote = std::get_if<Vote>(&message)) return on_agreement(peer, *vote);
  if (const auto* round = std::get_if<SettleRound>(&message)) return on_agreement(peer, *round);
  if (const auto* verdict = std::get_if<Verdict>(&message)) return on_agreement(peer, *verdict);
  if (const auto* abort = std::get_if<Abort>(&message)) return on_abort(peer, *abort);
  if (const auto* waiting = std::get_if<Waiting>(&message)) return on_waiting(peer, *waiting);
  if (const auto* start = std::get_if<Start>(&message)) return on_start(peer, *start);
  if (const auto* goodbye = std::get_if<Goodbye>(&message)) return on_goodbye(peer, *goodbye);
  if (const auto* lost = std::get_if<Lost>(&message)) return on_lost(peer, *lost);
  peer.place = std::get<Here>(message).place;
}

void Engine::on_waiting(Peer& peer, const Waiting& waiting) {
  peer.place = waiting.place;
  waits_.set(peer.rank, waiting.rank);
  if (waiting.rank == WaitGraph::kNobody) return;
  peer.control.send(Here{place_});
  // Deadlines differ, so that the first to pass half of its own may be the first to end: whoever waits
  // answers at once, or he would be taken for the one that everybody waits for.
  announce_all_waits();
}

void Engine::on_goodbye(Peer& peer, const Goodbye& goodbye) {
  peer.said_goodbye = true;
  peer.verdict_at = kNever;
  waits_.set(peer.rank, WaitGraph::kNobody);
  agree([&](Agreement& next) { next.on_left(peer.rank, goodbye.decided); });
  notify_waiters();
}

void Engine::on_abort(Peer& peer, const Abort& abort) {
  if (failure_) return;
  // This rank knows what it has done itself, and tells it to others, not they to it.
  const int origin = abort.origin < 0 || abort.origin == rank_ ? peer.rank : abort.origin;
  const int suspect = abort.suspect < 0 ? origin : abort.suspect;
  Error error{abort.code, abort.text.empty() ? "a failure, and gives no reason" : abort.text, suspect};
  if (!peer.is_optional) return fail(std::move(error), origin);
  // Whatever it has heard: those who decide hear it themselves.
  error.message = reported(peer.rank, error.message);
  lose(peer, std::move(error));
}

// The first error wins; all others learn it from here, even if its origin can't reach them. `silent` is a
// rank that answers nobody.
void Engine::fail(Error error, int origin, int silent) {
  if (failure_) return;
  const ControlMessage news = Abort{error.code, error.suspect, origin, error.message};
  if (origin != rank_) error.message = reported(origin, error.message);
  RankSet absent(world_size());
  if (silent != kNoSuspect) absent.add(silent);
  agree([&absent](Agreement& next) { next.fail(absent); }, &news);
  // From here on nothing needs memory.
  failure_ = std::move(error);
  each_peer([](Peer& peer) {
    peer.sender.clear();
    peer.receiver.clear();
  });
  notify_waiters();
  wake_driver();
}

void Engine::fail_for_memory() noexcept {
  try {
    fail({ErrorCode::kNoMemory, "rank " + std::to_string(rank_) + " is out of memory", rank_}, rank_);
  } catch (const std::exception&) {
    fail_without_text(ErrorCode::kNoMemory);
  }
}

// No memory to say more, nor to tell the others: the I/O thread tells them as soon as there is. Here
// everything ends all the same: posted memory would be used after its owner has gone.
void Engine::fail_without_text(ErrorCode code) noexcept {
  if (!failure_) failure_.emplace(Error{code, {}, rank_});
  settle_by_ = Clock::now() + kSettleTime;
  each_peer([](Peer& peer) {
    peer.sender.clear();
    peer.receiver.clear();
  });
  notify_waiters();
  wake_driver();
}

void Engine::tell_late() noexcept {
  try {
    const ControlMessage news = Abort{failure_->code, failure_->suspect, rank_, {}};
    agree([this](Agreement& next) { next.fail(RankSet(world_size())); }, &news);
    // NOLINTNEXTLINE(bugprone-empty-catch): it is still untold, and so comes again.
  } catch (const std::bad_alloc&) {
  }
}

void Engine::on_data_lost(Peer& peer, int error) {
  if (error != 0) peer.stream_error = error;
  // The peer's last words come first: one that aborted and left is not to blame.
  read_control(peer);
  count_ballots();
  if (failure_ || peer.loss) return;
  if (peer.said_goodbye) {
    notify_waiters();
  } else if (peer.verdict_at == kNever) {
    peer.verdict_at = Clock::now() + kExplanationTime;
    wake_driver();
  }
}

void Engine::fail_lost(Peer& peer, int error) {
  const std::string name = rank_name(peer.rank);
  std::string message;
  if (error != 0) {
    message = "the connection to " + name + " broke (" + std::generic_category().message(error) +
              "); check the network and " + name + "'s machine";
  } else if (peer.control.end() == ControlStream::End::kOpen) {
    message = "the data connection to " + name +
              " was cut while its control connection still stands; check the network between";
  } else {
    message =
        name + " closed its connection without a farewell (killed or crashed?); see " + name + "'s own log";
  }
  blame(peer, {ErrorCode::kPeerLost, std::move(message), peer.rank});
}

void Engine::fail_left(Peer& peer) {
  const std::string name = rank_name(peer.rank);
  blame(peer, {ErrorCode::kPeerLost,
               name + " left in good order while " + rank_name(rank_) +
                   " still waits for it; do all ranks run the same number of steps?",
               peer.rank});
}

std::optional<Error> Engine::failure(std::chrono::milliseconds wait) const {
  if (in_forked_child()) return forked().value();
  Lock lock(mutex_);
  const auto left = [this] {
    return std::ranges::find_if(peers_, [](const auto& peer) { return peer && peer->said_goodbye; });
  };
  ended_.wait_for(lock, wait, [&] { return failure_ || left() != peers_.end(); });
  if (failure_) return told_failure();
  if (left() == peers_.end()) return std::nullopt;
  const int rank = (*left())->rank;
  return Error{ErrorCode::kPeerLost, rank_name(rank) + " left in good order", rank, standing_step_};
}

bool Engine::answers(const Peer& peer, const Waiter& waiter) const noexcept {
  return waiter.asked_at != kNever && peer.heard_at >= waiter.asked_at;
}

std::string Engine::what_is_due(const Operation& operation) const {
  const std::string name = rank_name(operation.peer);
  switch (operation.kind) {
    case Operation::Kind::kSend: return name + " to take a message";
    case Operation::Kind::kReceive: return "a message of " + name;
    case Operation::Kind::kVote: break;
  }
  return "the vote of " + name;
}

std::string Engine::waited(const Waiter& waiter, const Operation& operation) const {
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - waiter.began_at);
  return rank_name(rank_) + " waited " + std::to_string(waited.count()) + " ms for " +
         what_is_due(operation) + "; ";
}

void Engine::fail_timeout(Waiter& waiter) {
  // This rank itself may have been the frozen one: the verdict of the others is then here already.
  read_all_control();
  if (failure_ || has_ended(waiter) || awaits_answers(waiter)) return;
  const WaitGraph::Verdict verdict = verdict_on(waiter);
  Peer& suspect = peer(verdict.suspect);
  Error error{ErrorCode::kTimeout, waited(waiter, *waiter.operation) + what_is_known(waiter, verdict),
              verdict.suspect};
  if (outlives(waiter, suspect, error)) return;
  const bool silent = waiter.asked_at != kNever && !answers(suspect, waiter);
  fail(std::move(error), rank_, silent ? verdict.suspect : kNoSuspect);
}

// Why a wait was too long.
std::string Engine::what_is_known(const Waiter& waiter, const WaitGraph::Verdict& verdict) {
  Peer& suspect = peer(verdict.suspect);
  const std::string name = rank_name(verdict.suspect);
  const std::string chain = verdict.chain.empty() ? "" : verdict.chain + "; ";
  const bool silent = waiter.asked_at != kNever && !answers(suspect, waiter);
  if (verdict.cycle) {
    return verdict.chain + ": the ranks wait for each other in a circle, so do they all run the same steps?";
  }
  if (const auto time = deaf_for(suspect); time.count() > 0) {
    const std::string nothing = "its machine has acknowledged nothing that " + rank_name(rank_) +
                                " has sent for " + std::to_string(time.count()) + " ms: ";
    if (silent) {
      return chain + name + " answers nothing, and " + nothing +
             "the network between them is cut, in one direction or both, or that machine is down; check both";
    }
    return chain + name + " is heard, but " + nothing +
           "it does not arrive; check the network in this direction";
  }
  std::string text = chain + name + " waits for nobody: ";
  if (silent) {
    text += "it answers nothing, so it is frozen or cut off;";
  } else if (suspect.place < place_) {
    text +=
        "it answers, but has not arrived at this step; if that may take so long, allow it more time "
        "(arrival_timeout), else";
  } else {
    text += "frozen, stuck or busy, or the time (timeout) is too short for the link;";
  }
  return text + " see its own log";
}

// For how long the peer's machine has acknowledged nothing of what it was asked: 0 where it has, or where the
// acknowledgement may be on its way.
std::chrono::milliseconds Engine::deaf_for(Peer& peer) noexcept {
  const Clock::duration time = peer.control.unacknowledged_for(Clock::now());
  return time < kDeafTime ? std::chrono::milliseconds{}
                          : std::chrono::duration_cast<std::chrono::milliseconds>(time);
}

void Engine::broadcast(const ControlMessage& message) {
  each_peer([&message](Peer& peer) { peer.control.send(message); });
}

// Tells the others whom the longest of the waits worth announcing is for, if that has changed.
void Engine::update_announcement() {
  int target = WaitGraph::kNobody;
  for (const Waiter* waiter : waiters_) {
    if (!waiter->announced || waiter->operation->done) continue;
    target = waiter->operation->peer;
    break;
  }
  if (target == announced_ || failure_) return;
  announced_ = target;
  broadcast(Waiting{target, place_});
}

void Engine::announce_all_waits() {
  for (Waiter* waiter : waiters_) {
    if (waiter->announced) continue;
    waiter->announced = true;
    ask(*waiter);
  }
}

void Engine::notify_waiters() noexcept {
  ended_.notify_all();
  for (Waiter* waiter : waiters_) waiter->changed.notify_all();
  if (driver_ != nullptr) wake_polling();
}

}  // namespace deltawire
