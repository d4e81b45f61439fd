// What all ranks agree on: which steps count, and the failure that has ended the mesh
// (docs/design/commit.md).
//
// The first error wins. Every rank learns of it, every wait ends with it, and data streams stop.
// Thread rule: every member is called under the mesh's lock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
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
  void begin_to_settle() noexcept;
  // Continues without the ranks that have not answered, and gives the others more time. If an allocation
  // fails, it is to be called again soon.
  void give_up_waiting();

 private:
  void adopt_next(const ControlMessage* first);

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
  Consensus(Peers& peers, Waiters& waiters, Driver& driver);
  Consensus(const Consensus&) = delete;
  Consensus& operator=(const Consensus&) = delete;

  bool failed() const noexcept { return failure_.has_value(); }
  // With the last step that counts.
  Error failure() const;
  // Ends the mesh and tells all ranks, even if `origin`, the rank that failed first, can't reach them.
  // `silent` is a rank that doesn't answer.
  void fail(Error error, int origin, int silent = kNoSuspect);
  void fail_for_memory() noexcept;
  // For a failure without memory for its text or for messages; tell_late() tells the others once there is.
  void fail_without_text(ErrorCode code) noexcept;
  // If `act` runs out of memory, this ends the mesh, on any thread; posted operations stay posted.
  void or_fail(auto act) noexcept {
    try {
      act();
    } catch (const std::exception&) {
      fail_for_memory();
    }
  }
  bool is_untold() const noexcept { return failed() && !protocol_.state().failed(); }
  void tell_late() noexcept;

  // Whether a vote of this rank is open; it lasts until close().
  bool is_voting() const noexcept { return vote_ != nullptr; }
  // Votes; `vote` ends when it is decided whether the ballot counts.
  void cast(const Ballot& ballot, Operation& vote);
  // Whether that rank's vote on the open, undecided ballot is missing.
  bool misses_vote_of(int rank) const noexcept;
  // All have voted, and this rank has read all messages so far.
  bool may_count() const noexcept { return protocol_.state().may_count(); }
  void count();
  // Ends the vote. If the mesh has failed meanwhile, waits until the surviving ranks agree whether the ballot
  // counts. Returns all ballots, by rank, valid until the next cast(); nothing: the ballot does not count.
  std::optional<std::span<const Ballot>> close(Lock& lock, Waiter& waiter) noexcept;
  // Ballots that count.
  std::uint64_t decided() const noexcept { return protocol_.state().decided(); }

  void receive(const Peer& peer, const AgreementMessage& message);
  void on_left(int rank, std::uint64_t decided);
  // Ignores that rank from now on. Sends `news` first.
  void on_gone(int rank, const ControlMessage* news = nullptr);

  // When to give up waiting for the others' messages; kNever: it waits for none.
  Deadline settle_by() const noexcept;
  void give_up_waiting();

  // Something has happened that may end waits.
  void notify_waiters() noexcept;
  // Waits until the mesh fails or a peer leaves normally, for `time` at most; returns which of them happened.
  std::optional<Error> await_end(Lock& lock, std::chrono::milliseconds time) const;
  // The last step that counts; after a failure, once the others have announced their verdicts.
  LastCommit await_last_commit(Lock& lock) const;

 private:
  void agree(auto act, const ControlMessage* first = nullptr) {
    protocol_.change(act, first);
    heed_agreement();
    if (protocol_.has_concluded()) ended_.notify_all();
  }
  void heed_agreement() noexcept;
  void end_all() noexcept;

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
