// Ranks that the others go on without (Transport::set_optional).
#include <algorithm>
#include <utility>
#include <vector>

#include "transport/mesh/engine.h"

namespace deltawire {

void Engine::set_optional(std::span<const int> ranks) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  for (const int rank : ranks) {
    has_optional_ = true;
    if (rank == rank_) {
      is_optional_ = true;
    } else {
      peer(rank).is_optional = true;
    }
  }
}

std::optional<Error> Engine::loss_of(int rank) const {
  if (in_forked_child() || rank == rank_) return std::nullopt;
  const Lock lock(mutex_);
  return peers_[static_cast<std::size_t>(rank)]->loss;
}

void Engine::lose(int rank, const Error& error) noexcept {
  if (in_forked_child()) return;
  {
    const Lock lock(mutex_);
    const bool may = !is_optional_ && rank >= 0 && rank < world_size() && rank != rank_;
    if (may && peer(rank).is_optional) {
      or_fail([&] { lose(peer(rank), error); });
      return;
    }
  }
  abort(error);
}

// What a peer has done would end the mesh: unless it is optional.
void Engine::blame(Peer& peer, Error error) {
  if (peer.is_optional) {
    lose(peer, std::move(error));
  } else {
    fail(std::move(error), rank_);
  }
}

// The required ranks tell all, so that it is lost everywhere, itself included. An optional one says nothing:
// nobody would heed it.
void Engine::lose(Peer& peer, Error error) {
  if (failure_ || peer.loss) return;
  const ControlMessage news = Lost{peer.rank, error.code, error.message};
  agree([&peer](Agreement& next) { next.on_lost(peer.rank); }, is_optional_ ? nullptr : &news);
  peer.lose(std::move(error));
  waits_.set(peer.rank, WaitGraph::kNobody);
  operations_.fail_all(peer.rank);
  // Where a lost rank blames a required one, that is what others wait for too: they will find the same.
  if (!blames_required(peer)) renew();
  notify_waiters();
  wake_driver();
  update_announcement();
}

void Engine::on_lost(const Peer& from, const Lost& lost) {
  if (failure_ || from.is_optional) return;
  const bool may_be_lost = lost.rank == rank_ ? is_optional_ : peer(lost.rank).is_optional;
  if (!may_be_lost) {
    return fail({ErrorCode::kMismatch,
                 rank_name(from.rank) + " has dropped " + rank_name(lost.rank) +
                     ", which is not optional on " + rank_name(rank_) +
                     "; name the same optional ranks on all, before the first operation (it says of " +
                     rank_name(lost.rank) + ": " + lost.text + ")",
                 from.rank},
                rank_);
  }
  if (lost.rank == rank_) {
    fail({lost.code,
          rank_name(from.rank) + " has dropped " + rank_name(rank_) +
              ", this one, and the others go on without it: " + lost.text,
          rank_},
         from.rank);
    return;
  }
  Peer& gone = peer(lost.rank);
  if (gone.loss && gone.loss->suspect == from.rank) renew();  // it was blamed, but lives
  blame(gone, {lost.code, reported(from.rank, lost.text), lost.rank});
}

bool Engine::blames_required(const Peer& lost) const noexcept {
  const int suspect = lost.loss->suspect;
  return suspect >= 0 && suspect < world_size() && suspect != rank_ &&
         !peers_[static_cast<std::size_t>(suspect)]->is_optional;
}

// The peer of an operation that can't be done any more, since the peer has left. Of several operations the
// first counts, as in a wait that is too long; but an optional peer's is no reason to wait for the deadline.
Peer* Engine::hopeless(const Waiter& waiter) noexcept {
  Peer& awaited = peer(waiter.operation->peer);
  if (awaited.is_hopeless(*waiter.operation)) return &awaited;
  if (!has_optional_) return nullptr;
  for (const Handle other : waiter.others) {
    const Operation& operation = *operations_.find(other);
    Peer& gone = peer(operation.peer);
    if (gone.is_optional && gone.is_hopeless(operation)) return &gone;
  }
  return nullptr;
}

// Where ranks may be lost, silence is to blame: those who were asked only just now still get time to answer.
// True: the wait goes on for so long.
bool Engine::awaits_answers(Waiter& waiter) {
  if (!has_optional_) return false;
  if (waiter.asked_at == kNever) {  // this rank itself has not run meanwhile
    waiter.announced = true;
    ask(waiter);
  }
  const Deadline answered_by = waiter.asked_at + kAnswerTime;
  if (Clock::now() >= answered_by) return false;
  const auto is_silent = [&](const Operation& operation) {
    return !operation.done && !answers(peer(operation.peer), waiter);
  };
  const bool may_answer =
      is_silent(*waiter.operation) ||
      std::ranges::any_of(waiter.others, [&](Handle other) { return is_silent(*operations_.find(other)); });
  if (may_answer) waiter.deadline = answered_by;
  return may_answer;
}

// There, one that answers nothing is to blame itself, whomever it said it waits for. And anywhere one that is
// out of reach: it may wait for what was sent to it and has not arrived.
WaitGraph::Verdict Engine::verdict_on(const Waiter& waiter) {
  const int awaited = waiter.operation->peer;
  const bool silent = has_optional_ && !answers(peer(awaited), waiter);
  if (silent || deaf_for(peer(awaited)).count() > 0) {
    return {.suspect = awaited, .cycle = false, .chain = {}};
  }
  return waits_.follow(rank_, awaited);
}

// A deadline that blames an optional rank loses it, and with it all that are waited for and answer nothing.
// False: it is for the mesh to end. An optional rank decides nothing: while the rank that it waits for
// answers, that one is given the time to.
bool Engine::outlives(Waiter& waiter, Peer& suspect, const Error& error) {
  if (!suspect.is_optional) return false;
  if (is_optional_ || suspect.loss) {
    if (waiter.renewals == world_size()) return false;
    ++waiter.renewals;
    const Deadline now = Clock::now();
    renewed_until_ = now + longest_wait_;
    renew(waiter, now);
    return true;
  }
  std::vector<std::pair<Peer*, Error>> lost;
  lost.emplace_back(&suspect, error);
  for (const Handle other : waiter.others) {
    const Operation& operation = *operations_.find(other);
    Peer& silent = peer(operation.peer);
    if (operation.done || !silent.is_optional || answers(silent, waiter)) continue;
    lost.emplace_back(&silent, Error{ErrorCode::kTimeout,
                                     waited(waiter, operation) +
                                         "it answers nothing, so it is frozen or cut off; see its own log",
                                     silent.rank});
  }
  for (auto& [peer, why] : lost) lose(*peer, std::move(why));
  return true;
}

// All that waits here gets its time again.
void Engine::renew() {
  const Deadline now = Clock::now();
  renewed_until_ = now + longest_wait_;
  for (Waiter* waiter : waiters_) renew(*waiter, now);
}

void Engine::renew(Waiter& waiter, Deadline now) noexcept {
  if (waiter.deadline >= renewed_until_) return;
  waiter.deadline = renewed_until_;
  waiter.announced = false;
  waiter.asked_at = kNever;
  waiter.announce_at = now + longest_wait_ / 2;
}

}  // namespace deltawire
