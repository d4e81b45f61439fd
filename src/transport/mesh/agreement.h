// What the ranks of a mesh agree on: which steps count. A state machine without clocks and without I/O, so
// that a test can drive it through every order of messages and crashes. docs/design/commit.md has the
// protocol and why it is right. What throws std::bad_alloc leaves it unusable, but a copy can be tried first;
// receive() of a Vote needs no memory.
//
// As long as nothing fails, a ballot counts when every rank has cast it alike. When the mesh fails, the ranks
// that live settle whether the ballot that was open counts: alike, or for none of them. Then each says where
// it stands, and only whoever has said so is known to stand there.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/mesh/agreement_message.h"
#include "transport/mesh/open_ballot.h"
#include "transport/mesh/settle_rounds.h"

namespace deltawire {

class Agreement {
 public:
  Agreement(int rank, int world_size);

  using Outcome = OpenBallot::Outcome;
  Outcome outcome() const noexcept { return ballot_.outcome(); }
  // The ballot that is open, or due.
  const OpenBallot& ballot() const noexcept { return ballot_; }
  // Ballots that count, on every rank.
  std::uint64_t decided() const noexcept { return ballot_.number(); }
  bool failed() const noexcept { return failed_; }
  // Whether decided() is final. REQUIRES: failed().
  bool settled() const noexcept { return settled_; }
  // Whether this rank knows where all others stand, but for those that it no longer counts on.
  bool concluded() const noexcept;
  // Ranks that have not said that they stand where this one does: in a verdict, or when they left in good
  // order. REQUIRES: failed().
  RankSet unheard() const;

  // This rank votes. REQUIRES: !failed() and no ballot of its own is open.
  void cast(const Ballot& ballot);
  // All have voted on the open ballot.
  bool may_count() const noexcept {
    return !failed_ && outcome() == Outcome::kOpen && ballot_.first_missing() < 0;
  }
  // Decides it. A rank that was frozen may have been given up before the others had its vote: so the caller
  // looks for news after its vote is sent, and before this. REQUIRES: may_count().
  void count() noexcept { ballot_.count(); }

  // A message of `peer`; false if no rank that keeps to the protocol would send it.
  bool receive(int peer, const AgreementMessage& message);
  // `peer` left in good order, with so many ballots that count.
  void on_left(int peer, std::uint64_t decided);
  // `peer` is gone, or nobody can tell any more.
  void on_gone(int peer);
  // The mesh has failed; those in `silent` answer nobody. REQUIRES: not this rank.
  void fail(const RankSet& silent);
  // Time is up: goes on without those who have not answered. True if there was anybody to give up on.
  bool give_up_waiting();

  // What is to be sent to all peers, in order; the caller empties it.
  std::vector<AgreementMessage>& outbox() noexcept { return outbox_; }

  // Equal states answer everything that may come alike: for a test that explores them.
  bool operator==(const Agreement&) const = default;

 private:
  bool takes_from(int peer) const noexcept { return !absent_.has(peer) || cut_off_; }
  bool on_vote(int peer, const Vote& vote);
  bool on_round(int peer, const SettleRound& round);
  bool on_verdict(int peer, const Verdict& verdict);
  void begin_round();
  void end_rounds();
  void go_on_without_the_absent();
  void give_up_on(const RankSet& ranks);
  void settle(std::uint64_t decided);

  int rank_;
  int world_size_;
  OpenBallot ballot_;
  bool failed_ = false;
  bool settled_ = false;
  bool cut_off_ = false;  // somebody no longer counts on this rank: it can only listen
  RankSet absent_;        // whom this rank no longer counts on
  std::vector<std::optional<std::uint64_t>> stands_;  // by rank: where it has said that it stands for good
  Knowledge known_;
  SettleRounds rounds_;
  std::vector<AgreementMessage> outbox_;
};

}  // namespace deltawire
