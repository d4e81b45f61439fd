#include "transport/mesh/vote/consensus.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <type_traits>
#include <utility>
#include <variant>

namespace deltawire {

void AgreementProtocol::begin_to_settle() noexcept {
  settle_by_ = MachineClock::now() + kSettleTime;
}

void AgreementProtocol::give_up_waiting() {
  settle_by_ = MachineClock::now() + kMemoryPause;
  change([](Agreement& next) { (void)next.give_up_waiting(); });
  begin_to_settle();
}

void AgreementProtocol::adopt_next(const ControlMessage* first) {
  said_.clear();
  const auto say = [this](const ControlMessage& message) {
    append_control_message(message, peers_.world_size(), said_);
  };
  if (first != nullptr) say(*first);
  for (const AgreementMessage& message : next_.outbox()) std::visit(say, message);
  // If there is something new to send, the others get time to answer.
  if (!next_.outbox().empty()) begin_to_settle();
  next_.outbox().clear();
  peers_.each([this](Peer& peer) { peer.control.reserve(said_.size()); });
  // From here on nothing allocates.
  static_assert(std::is_nothrow_swappable_v<Agreement>);
  assert(next_.outbox().empty());
  peers_.each([this](Peer& peer) { peer.control.send_encoded(said_); });
  std::swap(state_, next_);
}

Consensus::Consensus(Peers& peers, Waiters& waiters, Driver& driver)
    : peers_(peers),
      waiters_(waiters),
      driver_(driver),
      protocol_(peers),
      ballots_(static_cast<std::size_t>(peers.world_size())) {}

Error Consensus::failure() const {
  assert(failed());
  Error told = *failure_;
  told.last_committed_step = last_committed_step_;
  return told;
}

void Consensus::fail(Error error, int origin, int silent) {
  if (failure_) return;
  assert(origin >= 0 && origin < peers_.world_size() && silent != peers_.self());
  const ControlMessage news = Abort{error, origin};
  if (origin != peers_.self()) error = peers_.names().reported(origin, std::move(error));
  RankSet absent(peers_.world_size());
  if (silent != kNoSuspect) absent.add(silent);
  agree([&absent](Agreement& next) { next.fail(absent); }, &news);
  // From here on nothing allocates.
  failure_ = std::move(error);
  end_all();
}

void Consensus::fail_for_memory() noexcept {
  try {
    const int self = peers_.self();
    fail({.code = ErrorCode::kNoMemory,
          .message = peers_.name(self) + " is out of memory",
          .suspect = self,
          .reporter = self},
         self);
  } catch (const std::exception&) {
    fail_without_text(ErrorCode::kNoMemory);
  }
}

// The mesh must end even so: otherwise posted memory would be used after its owner has gone.
void Consensus::fail_without_text(ErrorCode code) noexcept {
  if (!failure_) failure_.emplace(Error{code, {}, peers_.self()});
  protocol_.begin_to_settle();
  end_all();
}

void Consensus::end_all() noexcept {
  peers_.each([](Peer& peer) {
    peer.sender.clear();
    peer.receiver.clear();
  });
  notify_waiters();
  driver_.wake();
}

void Consensus::tell_late() noexcept {
  assert(is_untold());
  try {
    const ControlMessage news = Abort{{failure_->code, {}, failure_->suspect}, peers_.self()};
    agree([this](Agreement& next) { next.fail(RankSet(peers_.world_size())); }, &news);
    // NOLINTNEXTLINE(bugprone-empty-catch): it is still untold, so it will be tried again.
  } catch (const std::bad_alloc&) {
  }
}

void Consensus::cast(const Ballot& ballot, Operation& vote) {
  assert(!failed() && !is_voting());
  agree([&ballot](Agreement& next) { next.cast(ballot); });
  // The vote was sent: from here on, whether it counts is settled as after any other failure.
  vote_ = &vote;
  ballot_ = ballot;
  heed_agreement();
}

bool Consensus::misses_vote_of(int rank) const noexcept {
  return vote_ != nullptr && !vote_->done && !protocol_.state().ballot().has_vote_of(rank);
}

void Consensus::count() {
  if (may_count()) protocol_.count();
  heed_agreement();
}

std::optional<std::span<const Ballot>> Consensus::close(Lock& lock, Waiter& waiter) noexcept {
  assert(lock.owns_lock() && waiter.operation == vote_);
  waiter.operation->waiter = &waiter.changed;
  waiter.changed.wait(lock, [&waiter] { return waiter.operation->done; });
  waiter.operation->waiter = nullptr;
  vote_ = nullptr;
  const Agreement& agreement = protocol_.state();
  switch (agreement.outcome()) {
    case Agreement::Outcome::kUnanimous: std::ranges::fill(ballots_, ballot_); return ballots_;
    case Agreement::Outcome::kSplit:
      for (std::size_t i = 0; i < ballots_.size(); ++i) {
        ballots_[i] = agreement.ballot().of(static_cast<int>(i));
      }
      return ballots_;
    case Agreement::Outcome::kNone:
    case Agreement::Outcome::kOpen:
    case Agreement::Outcome::kReverted: break;
  }
  return std::nullopt;
}

// Ends the vote when it is decided.
void Consensus::heed_agreement() noexcept {
  if (vote_ == nullptr || vote_->done) return;
  const Agreement& agreement = protocol_.state();
  if (agreement.outcome() == Agreement::Outcome::kOpen) {
    const int missing = agreement.ballot().first_missing();
    if (missing >= 0) vote_->peer = missing;
    return;
  }
  assert(agreement.outcome() != Agreement::Outcome::kNone);
  if (agreement.outcome() == Agreement::Outcome::kUnanimous) last_committed_step_ = ballot_.step;
  vote_->finish(0);
  driver_.tell();
}

void Consensus::receive(const Peer& peer, const AgreementMessage& message) {
  const auto* vote = std::get_if<Vote>(&message);
  if (!failure_ && vote == nullptr) {
    fail({ErrorCode::kAborted,
          peers_.name(peer.rank) + " reports that the job has failed, without a cause; see its own log",
          peer.rank},
         peers_.self());
  }
  bool proper = false;
  if (vote != nullptr) {
    proper = protocol_.receive_vote(peer.rank, *vote);
    heed_agreement();
  } else {
    agree([&](Agreement& next) { proper = next.receive(peer.rank, message); });
  }
  if (proper) return;
  fail({ErrorCode::kCorrupt, peers_.name(peer.rank) + " votes out of turn; do all ranks run the same steps?",
        peer.rank},
       peers_.self());
}

void Consensus::on_left(int rank, std::uint64_t decided) {
  agree([&](Agreement& next) { next.on_left(rank, decided); });
}

void Consensus::on_gone(int rank, const ControlMessage* news) {
  agree([rank](Agreement& next) { next.on_gone(rank); }, news);
}

Deadline Consensus::settle_by() const noexcept {
  return failure_ && !protocol_.has_concluded() ? protocol_.settle_by() : kNever;
}

void Consensus::give_up_waiting() {
  protocol_.give_up_waiting();
  heed_agreement();
  if (protocol_.has_concluded()) ended_.notify_all();
}

void Consensus::notify_waiters() noexcept {
  ended_.notify_all();
  waiters_.notify_all();
  driver_.tell_all();
}

std::optional<Error> Consensus::await_end(Lock& lock, std::chrono::milliseconds time) const {
  const auto left = [this] { return peers_.find([](const Peer& peer) { return peer.said_goodbye; }); };
  ended_.wait_for(lock, time, [&] { return failure_ || left() != nullptr; });
  if (failure_) return failure();
  const Peer* gone = left();
  if (gone == nullptr) return std::nullopt;
  return Error{ErrorCode::kPeerLost, peers_.name(gone->rank) + " left in good order", gone->rank,
               last_committed_step_};
}

LastCommit Consensus::await_last_commit(Lock& lock) const {
  assert(lock.owns_lock());
  if (!failure_) return {last_committed_step_, {}};
  // The I/O thread brings this about, unless it runs out of memory.
  ended_.wait_for(lock, 2 * AgreementProtocol::kSettleTime, [this] { return protocol_.has_concluded(); });
  LastCommit commit{last_committed_step_, {}};
  const RankSet unheard = protocol_.state().unheard();
  for (int rank = 0; rank < peers_.world_size(); ++rank) {
    if (unheard.has(rank)) commit.unheard.push_back(rank);
  }
  return commit;
}

}  // namespace deltawire
