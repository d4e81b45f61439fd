// What holds for all ranks: which steps count, and the failure that has ended the mesh
// (docs/design/commit.md).
//
// The first error wins. Every rank learns it, every wait ends with it, and no stream of data moves any more.
// Thread rule: every member is called under the mesh's lock.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "deltawire/transport.h"
#include "transport/mesh/agreement_protocol.h"
#include "transport/mesh/driver.h"
#include "transport/mesh/peers.h"
#include "transport/mesh/waiters.h"

namespace deltawire {

class Consensus {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // All of them outlive it.
  Consensus(Peers& peers, Waiters& waiters, Driver& driver);
  Consensus(const Consensus&) = delete;
  Consensus& operator=(const Consensus&) = delete;

  bool failed() const noexcept { return failure_.has_value(); }
  // With the last step that counts. REQUIRES: failed().
  Error failure() const;
  // Tells it to all, even if `origin`, the rank that failed first, can't reach them. `silent` is a rank that
  // answers nobody.
  void fail(Error error, int origin, int silent = kNoSuspect);
  void fail_for_memory() noexcept;
  // Where there is no memory to say more, nor to tell the others: tell_late() does, as soon as there is.
  void fail_without_text(ErrorCode code) noexcept;
  // Memory that `act` can't have ends the mesh, on whichever thread: what is posted stays posted.
  template <class Act>
  void or_fail(Act act) noexcept {
    try {
      act();
    } catch (const std::exception&) {
      fail_for_memory();
    }
  }
  bool is_untold() const noexcept { return failed() && !protocol_.state().failed(); }
  void tell_late() noexcept;

  // A vote of this rank is open, and lasts until close().
  bool is_voting() const noexcept { return vote_ != nullptr; }
  // `vote` ends when it is decided whether the ballot counts.
  void cast(const Ballot& ballot, Operation& vote);
  // Of the open ballot, not decided yet, this rank's vote is missing.
  bool misses_vote_of(int rank) const noexcept;
  // All have voted, and this rank has heard what all have said by now.
  bool may_count() const noexcept { return protocol_.state().may_count(); }
  void count();
  // Where the mesh has failed meanwhile, waits until the ranks that live agree whether the ballot counts.
  // Everybody's, by rank, until the next cast(); nothing: the ballot does not count.
  std::optional<std::span<const Ballot>> close(Lock& lock, Waiter& waiter) noexcept;
  // Ballots that count.
  std::uint64_t decided() const noexcept { return protocol_.state().decided(); }

  void receive(const Peer& peer, const AgreementMessage& message);
  void on_left(int rank, std::uint64_t decided);
  // Nothing of that rank is heeded any more. Sends `news` first.
  void on_gone(int rank, const ControlMessage* news = nullptr);

  // When to give up waiting for what others have to say; kNever: for nothing, now.
  Deadline settle_by() const noexcept;
  void give_up_waiting();

  // Something has happened that waits have to look at.
  void notify_waiters() noexcept;
  // Until the mesh fails or a peer leaves in good order, for `time` at most: what of it has happened.
  std::optional<Error> await_end(Lock& lock, std::chrono::milliseconds time) const;
  // After a failure, when the others have said where they stand.
  LastCommit await_last_commit(Lock& lock) const;

 private:
  template <class Act>
  void agree(Act act, const ControlMessage* first = nullptr) {
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
  mutable std::condition_variable ended_;  // the mesh, or a peer has left
  Operation* vote_ = nullptr;              // the open one
  Ballot ballot_;                          // of this rank, cast last
  std::vector<Ballot> ballots_;            // everybody's, by rank, in the last vote
  std::uint64_t last_committed_step_ = kNoStep;
};

}  // namespace deltawire
