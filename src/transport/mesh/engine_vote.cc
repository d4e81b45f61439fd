#include <algorithm>
#include <new>
#include <string>
#include <type_traits>

#include "transport/mesh/engine.h"

namespace deltawire {

void Engine::set_arrival_timeout(std::chrono::milliseconds timeout) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  arrival_timeout_ = timeout;
}

void Engine::arrive(std::uint64_t step) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  if (failure_) return;
  ++place_;
  step_is_open_ = true;
  if (starts_ == 0 || (step != last_step_ && step != last_step_ + 1)) {
    ++starts_;
    start_step_ = step;
    broadcast(Start{step});
  }
  last_step_ = step;
  each_peer([this](const Peer& peer) { compare_start(peer); });
}

void Engine::on_start(Peer& peer, const Start& start) {
  ++peer.starts;
  peer.start_step = start.step;
  // A peer that begins anew without having voted on this rank's step will not take part in it. Otherwise this
  // rank may be about to begin anew too: its next arrival tells.
  const bool votes_missing = vote_ != nullptr && !vote_->done && !agreement_.has_voted(peer.rank);
  if (peer.starts <= starts_ || step_is_open_ || votes_missing) compare_start(peer);
}

// All ranks begin anew at the same points and with the same steps.
void Engine::compare_start(const Peer& peer) {
  if (failure_ || starts_ == 0 || peer.starts < starts_) return;
  if (peer.starts == starts_ && peer.start_step == start_step_) return;
  const std::string own = "rank " + std::to_string(rank_);
  const std::string other = "rank " + std::to_string(peer.rank);
  fail({ErrorCode::kMismatch,
        other + " goes on at step " + std::to_string(peer.start_step) + ", " + own + " at step " +
            std::to_string(peer.starts == starts_ ? start_step_ : last_step_) +
            "; load the same checkpoint on every rank, or on none",
        peer.rank},
       rank_);
}

Result<std::span<const Ballot>> Engine::vote(const Ballot& ballot, Deadline deadline) {
  if (in_forked_child()) return forked();
  Lock lock(mutex_);
  // A rank that was frozen may find that the others have gone on without it: their words come first.
  read_all_control();
  if (failure_) return failed(lock);
  if (has_optional_) {
    return deltawire::fail(ErrorCode::kState, "vote: ranks of this transport are optional, and have no vote");
  }
  if (vote_ != nullptr)
    return deltawire::fail(ErrorCode::kState, "vote: this rank's last vote is still open");
  note_step_blocks();
  agree([&ballot](Agreement& next) { next.cast(ballot); });
  // The vote is on its way: from here on, whether it counts is settled like after any other failure.
  Operation operation;
  operation.kind = Operation::Kind::kVote;
  operation.peer = rank_;
  vote_ = &operation;
  ballot_ = ballot;
  step_is_open_ = false;
  heed_agreement();
  Waiter waiter{.operation = &operation, .deadline = deadline};
  try {
    count_ballots();
    block(lock, waiter);
  } catch (const std::bad_alloc&) {
    fail_without_text(ErrorCode::kNoMemory);
  }
  settle_on(lock, waiter);
  vote_ = nullptr;
  switch (agreement_.outcome()) {
    case Agreement::Outcome::kUnanimous: std::ranges::fill(ballots_, ballot); return ballots_;
    case Agreement::Outcome::kSplit:
      for (std::size_t i = 0; i < ballots_.size(); ++i) {
        ballots_[i] = agreement_.ballot_of(static_cast<int>(i));
      }
      return ballots_;
    case Agreement::Outcome::kNone:
    case Agreement::Outcome::kOpen:
    case Agreement::Outcome::kReverted: break;
  }
  return failed(lock);
}

// All messages of a step that is voted for have come. Those of the next may come early, however few did in
// this one: the I/O thread sees to it that there is room.
void Engine::note_step_blocks() noexcept {
  std::uint64_t blocks = 0;
  each_peer([&blocks](const Peer& peer) { blocks += peer.receiver.early_blocks(); });
  step_blocks_ = blocks - blocks_before_;
  blocks_before_ = blocks;
}

// All have voted. But a rank that was frozen may be about to send its vote, or to read the last one, long
// after the others have gone on without it. So its vote goes out, it hears what all have said by now, and
// only then it counts. Whoever gives it up from here on has its vote.
void Engine::count_ballots() {
  if (!agreement_.may_count()) return;
  each_peer([this](Peer& peer) { read_control(peer); });
  if (agreement_.may_count()) agreement_.count();
  heed_agreement();
}

// Where the mesh has failed while this rank's vote was open: until the ranks that live agree whether it
// counts.
void Engine::settle_on(Lock& lock, Waiter& waiter) noexcept {
  waiter.operation->waiter = &waiter.changed;
  waiter.changed.wait(lock, [&waiter] { return waiter.operation->done; });
  waiter.operation->waiter = nullptr;
}

// Of the I/O thread, which alone is sure to run: time is up for those that have not said what they know, or
// where they stand.
void Engine::give_up_waiting() {
  if (!failure_ || has_concluded() || Clock::now() < settle_by_) return;
  // This rank itself may have been the frozen one.
  each_peer([this](Peer& peer) { read_control(peer); });
  settle_by_ = Clock::now() + kMemoryPause;
  agree([](Agreement& next) { (void)next.give_up_waiting(); });
  settle_by_ = Clock::now() + kSettleTime;
}

void Engine::on_agreement(Peer& peer, const AgreementMessage& message) {
  if (!failure_ && !std::holds_alternative<Vote>(message)) {
    fail({ErrorCode::kAborted,
          "rank " + std::to_string(peer.rank) + " settles a failure that it has told nobody", peer.rank},
         rank_);
  }
  bool proper = false;
  if (std::holds_alternative<Vote>(message)) {
    // As long as nothing fails, there are only these: no copies for them.
    proper = agreement_.receive(peer.rank, message);
    heed_agreement();
  } else {
    agree([&](Agreement& next) { proper = next.receive(peer.rank, message); });
  }
  if (proper) return;
  fail({ErrorCode::kCorrupt,
        "rank " + std::to_string(peer.rank) + " votes out of turn; do all ranks run the same steps?",
        peer.rank},
       rank_);
}

void Engine::adopt_next(const ControlMessage* first) {
  said_.clear();
  if (first != nullptr) append_control_message(*first, said_);
  for (const AgreementMessage& message : next_agreement_.outbox()) {
    append_control_message(std::visit([](const auto& each) { return ControlMessage(each); }, message), said_);
  }
  // What is new to the others gives them time to answer.
  if (!next_agreement_.outbox().empty()) settle_by_ = Clock::now() + kSettleTime;
  next_agreement_.outbox().clear();
  each_peer([this](Peer& peer) { peer.control.reserve(said_.size()); });
  // From here on nothing needs memory.
  static_assert(std::is_nothrow_swappable_v<Agreement>);
  each_peer([this](Peer& peer) { peer.control.send_encoded(said_); });
  std::swap(agreement_, next_agreement_);
  heed_agreement();
  if (has_concluded()) ended_.notify_all();
}

// Ends the vote when it is decided.
void Engine::heed_agreement() noexcept {
  if (vote_ == nullptr || vote_->done) return;
  if (agreement_.outcome() == Agreement::Outcome::kOpen) {
    const int missing = agreement_.first_missing();
    if (missing >= 0) vote_->peer = missing;
    return;
  }
  if (agreement_.outcome() == Agreement::Outcome::kUnanimous) standing_step_ = ballot_.step;
  vote_->finish(0);
  tell_driver();
}

Standing Engine::standing() const {
  if (in_forked_child()) return {};
  Lock lock(mutex_);
  if (!failure_) return {standing_step_, {}};
  // The I/O thread sees to it that this comes, but where it has no memory to.
  ended_.wait_for(lock, 2 * kSettleTime, [this] { return has_concluded(); });
  Standing standing{standing_step_, {}};
  const RankSet unheard = agreement_.unheard();
  for (int rank = 0; rank < world_size(); ++rank) {
    if (unheard.has(rank)) standing.unheard.push_back(rank);
  }
  return standing;
}

Error Engine::told_failure() const {
  Error told = *failure_;
  told.standing_step = standing_step_;
  return told;
}

}  // namespace deltawire
