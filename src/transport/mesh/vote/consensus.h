// What all ranks agree on: which steps count, and the failure that has ended the mesh
// (docs/design/commit.md).
//
// The first error wins. Every rank learns of it, every wait ends with it, and data streams stop.
// Thread rule: every member is called under the mesh's lock.
#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "deltawire/transport.h"
#include "transport/mesh/driver.h"
#include "transport/mesh/peers.h"
#include "transport/mesh/vote/agreement.h"
#include "transport/process/machine.h"

namespace deltawire {

// The agreement between the ranks, its messages, and the time that they may take.
//
// If an allocation fails, nothing is half done: the change and its messages are prepared on a copy; swapping
// it in and sending the messages does not allocate.
class AgreementProtocol {
 public:
  // How long a rank may take to announce its verdict when the mesh has failed. A living rank needs
  // milliseconds; an interrupt (Ctrl-C) waits this long for a frozen one.
  static constexpr std::chrono::milliseconds kSettleTime{3000};
  // The pause before a failed allocation is tried again.
  static constexpr std::chrono::milliseconds kMemoryPause{1};

  // `peers` must outlive it.
  explicit AgreementProtocol(Peers& peers)
      : peers_(peers), state_(peers.self(), peers.world_size()), next_(state_) {}

  const Agreement& state() const noexcept { return state_; }
  // The mesh has failed, and this rank knows all the verdicts that it ever will.
  bool has_concluded() const noexcept { return state_.failed() && state_.concluded(); }

  // Changes the agreement by `act`, and sends `first` and then the agreement's messages.
  void change(auto act, const ControlMessage* first = nullptr) {
    next_ = state_;
    act(next_);
    adopt_next(first);
  }
  // As long as nothing fails, there are only votes, which need no copy. False: it violates the protocol.
  bool receive_vote(int peer, const Vote& vote) { return state_.receive(peer, vote); }
  // All have voted: state().may_count().
  void count() { state_.count(); }

  // After a failure: until when ranks may send their rounds and verdicts.
  Deadline settle_by() const noexcept { return settle_by_; }

  void begin_to_settle() noexcept { settle_by_ = MachineClock::now() + kSettleTime; }

  // Continues without the ranks that have not answered, and gives the others more time. If an allocation
  // fails, it is to be called again soon.
  void give_up_waiting() {
    settle_by_ = MachineClock::now() + kMemoryPause;
    change([](Agreement& next) { (void)next.give_up_waiting(); });
    begin_to_settle();
  }

 private:
  void adopt_next(const ControlMessage* first) {
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

  Peers& peers_;
  Agreement state_;
  Agreement next_;               // the copy to change; it keeps its memory between votes
  std::vector<std::byte> said_;  // the encoded messages
  Deadline settle_by_{};
};

class Consensus {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // All of them must outlive it.
  Consensus(Peers& peers, Waiters& waiters, Driver& driver)
      : peers_(peers),
        waiters_(waiters),
        driver_(driver),
        protocol_(peers),
        ballots_(static_cast<std::size_t>(peers.world_size())) {}

  Consensus(const Consensus&) = delete;
  Consensus& operator=(const Consensus&) = delete;

  bool failed() const noexcept { return failure_.has_value(); }
  // With the last step that counts.
  Error failure() const {
    assert(failed());
    Error told = *failure_;
    told.last_committed_step = last_committed_step_;
    return told;
  }

  // Ends the mesh and tells all ranks, even if `origin`, the rank that failed first, can't reach them.
  // `silent` is a rank that doesn't answer.
  void fail(Error error, int origin, int silent = kNoSuspect) {
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

  void fail_for_memory() noexcept {
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

  // For a failure without memory for its text or for messages; tell_late() tells the others once there is.
  // The mesh must end even so: otherwise posted memory would be used after its owner has gone.
  void fail_without_text(ErrorCode code) noexcept {
    if (!failure_) failure_.emplace(Error{code, {}, peers_.self()});
    protocol_.begin_to_settle();
    end_all();
  }

  // If `act` runs out of memory, this ends the mesh, on any thread; posted operations stay posted.
  void or_fail(auto act) noexcept {
    try {
      act();
    } catch (const std::exception&) {
      fail_for_memory();
    }
  }
  bool is_untold() const noexcept { return failed() && !protocol_.state().failed(); }

  void tell_late() noexcept {
    assert(is_untold());
    try {
      const ControlMessage news = Abort{{failure_->code, {}, failure_->suspect}, peers_.self()};
      agree([this](Agreement& next) { next.fail(RankSet(peers_.world_size())); }, &news);
      // NOLINTNEXTLINE(bugprone-empty-catch): it is still untold, so it will be tried again.
    } catch (const std::bad_alloc&) {
    }
  }

  // Whether a vote of this rank is open; it lasts until close().
  bool is_voting() const noexcept { return vote_ != nullptr; }
  // Votes; `vote` ends when it is decided whether the ballot counts.
  void cast(const Ballot& ballot, Operation& vote) {
    assert(!failed() && !is_voting());
    agree([&ballot](Agreement& next) { next.cast(ballot); });
    // The vote was sent: from here on, whether it counts is settled as after any other failure.
    vote_ = &vote;
    ballot_ = ballot;
    heed_agreement();
  }

  // Whether that rank's vote on the open, undecided ballot is missing.
  bool misses_vote_of(int rank) const noexcept {
    return vote_ != nullptr && !vote_->done && !protocol_.state().ballot().has_vote_of(rank);
  }

  // All have voted, and this rank has read all messages so far.
  bool may_count() const noexcept { return protocol_.state().may_count(); }

  void count() {
    if (may_count()) protocol_.count();
    heed_agreement();
  }

  // Ends the vote. If the mesh has failed meanwhile, waits until the surviving ranks agree whether the ballot
  // counts. Returns all ballots, by rank, valid until the next cast(); nothing: the ballot does not count.
  std::optional<std::span<const Ballot>> close(Lock& lock, Waiter& waiter) noexcept {
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

  // Ballots that count.
  std::uint64_t decided() const noexcept { return protocol_.state().decided(); }

  void receive(const Peer& peer, const AgreementMessage& message) {
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
    fail({ErrorCode::kCorrupt,
          peers_.name(peer.rank) + " votes out of turn; do all ranks run the same steps?", peer.rank},
         peers_.self());
  }

  void on_left(int rank, std::uint64_t decided) {
    agree([&](Agreement& next) { next.on_left(rank, decided); });
  }

  // Ignores that rank from now on. Sends `news` first.
  void on_gone(int rank, const ControlMessage* news = nullptr) {
    agree([rank](Agreement& next) { next.on_gone(rank); }, news);
  }

  // When to give up waiting for the others' messages; kNever: it waits for none.
  Deadline settle_by() const noexcept {
    return failure_ && !protocol_.has_concluded() ? protocol_.settle_by() : kNever;
  }

  void give_up_waiting() {
    protocol_.give_up_waiting();
    heed_agreement();
    if (protocol_.has_concluded()) ended_.notify_all();
  }

  // Something has happened that may end waits.
  void notify_waiters() noexcept {
    ended_.notify_all();
    waiters_.notify_all();
    driver_.tell_all();
  }

  // Waits until the mesh fails or a peer leaves normally, for `time` at most; returns which of them happened.
  std::optional<Error> await_end(Lock& lock, std::chrono::milliseconds time) const {
    const auto left = [this] { return peers_.find([](const Peer& peer) { return peer.said_goodbye; }); };
    ended_.wait_for(lock, time, [&] { return failure_ || left() != nullptr; });
    if (failure_) return failure();
    const Peer* gone = left();
    if (gone == nullptr) return std::nullopt;
    return Error{ErrorCode::kPeerLost, peers_.name(gone->rank) + " left in good order", gone->rank,
                 last_committed_step_};
  }

  // The last step that counts; after a failure, once the others have announced their verdicts.
  LastCommit await_last_commit(Lock& lock) const {
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

 private:
  void agree(auto act, const ControlMessage* first = nullptr) {
    protocol_.change(act, first);
    heed_agreement();
    if (protocol_.has_concluded()) ended_.notify_all();
  }

  // Ends the vote when it is decided.
  void heed_agreement() noexcept {
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

  void end_all() noexcept {
    peers_.each([](Peer& peer) {
      peer.sender.clear();
      peer.receiver.clear();
    });
    notify_waiters();
    driver_.wake();
  }

  Peers& peers_;
  Waiters& waiters_;
  Driver& driver_;
  AgreementProtocol protocol_;
  std::optional<Error> failure_;
  mutable Condition ended_;      // the mesh has failed, or a peer has left
  Operation* vote_ = nullptr;    // the open one
  Ballot ballot_;                // of this rank, cast last
  std::vector<Ballot> ballots_;  // all ranks' ballots in the last vote
  std::uint64_t last_committed_step_ = kNoStep;
};

}  // namespace deltawire
