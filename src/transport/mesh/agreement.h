// What the ranks of a mesh agree on: which steps count. A state machine without clocks and without I/O, so
// that a test can drive it through every order of messages and crashes. docs/design/commit.md has the protocol and
// why it is right. What throws std::bad_alloc leaves it unusable, but a copy can be tried first; receive() of
// a Vote needs no memory.
//
// As long as nothing fails, a ballot counts when every rank has cast it alike. When the mesh fails, the ranks
// that live settle whether the ballot that was open counts: alike, or for none of them. Then each says where
// it stands, and only whoever has said so is known to stand there.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "deltawire/transport.h"
#include "transport/mesh/rank_set.h"

namespace deltawire {

// What is known of the ballots: how many were unanimous, and who has voted how on the next one.
struct Knowledge {
  std::uint64_t decided = 0;
  RankSet voters;      // on ballot number `decided`
  Ballot ballot = {};  // theirs; meaningless without voters
  bool split = false;  // two of them differ; whoever knows that needs no rounds, so it is never sent

  void add(int voter, const Ballot& cast) noexcept;
  void merge(const Knowledge& other) noexcept;
  // The number of ballots that count, by this knowledge.
  std::uint64_t verdict(int world_size) const noexcept;
  bool operator==(const Knowledge&) const = default;
};

// A ballot on its way. A vote on ballot number n also says that those before n were unanimous.
struct Vote {
  std::uint64_t number = 0;  // from 0
  Ballot ballot;

  bool operator==(const Vote&) const = default;
};

// One round of settling: all that the sender knew when the round began, and whom it no longer counts on.
struct SettleRound {
  std::uint32_t number = 0;  // from 1
  Knowledge known;
  RankSet absent;

  bool operator==(const SettleRound&) const = default;
};

// The sender has settled: for it, so many ballots count for good. It no longer counts on the absent.
struct Verdict {
  std::uint64_t decided = 0;
  RankSet absent;

  bool operator==(const Verdict&) const = default;
};

using AgreementMessage = std::variant<Vote, SettleRound, Verdict>;

class Agreement {
 public:
  Agreement(int rank, int world_size);

  // Where the ballot stands that this rank cast last.
  enum class Outcome : std::uint8_t {
    kNone,       // none is open
    kOpen,       // votes are missing, or the failed mesh has not settled yet
    kUnanimous,  // it counts
    kSplit,      // everybody has voted, and not alike: ballots() tells
    kReverted,   // it does not count, on any rank that takes part
  };
  Outcome outcome() const noexcept { return outcome_; }
  // Ballots that count, on every rank.
  std::uint64_t decided() const noexcept { return decided_; }
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
  bool may_count() const noexcept { return !failed_ && outcome_ == Outcome::kOpen && first_missing() < 0; }
  // Decides it. A rank that was frozen may have been given up before the others had its vote: so the caller
  // looks for news after its vote is sent, and before this. REQUIRES: may_count().
  void count();
  // The rank's ballot. REQUIRES: kSplit.
  const Ballot& ballot_of(int rank) const noexcept { return *votes_[static_cast<std::size_t>(rank)]; }
  // Whether the rank has voted on the ballot that is open, or due.
  bool has_voted(int rank) const noexcept { return votes_[static_cast<std::size_t>(rank)].has_value(); }
  // The lowest rank whose vote on the own open ballot is missing; -1 without one.
  int first_missing() const noexcept;

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
  bool pending() const noexcept { return outcome_ == Outcome::kOpen || outcome_ == Outcome::kSplit; }
  bool takes_from(int peer) const noexcept { return !absent_.has(peer) || cut_off_; }
  std::optional<Ballot>& vote_of(int rank) noexcept { return votes_[static_cast<std::size_t>(rank)]; }
  std::vector<SettleRound>& rounds_of(int rank) noexcept { return rounds_[static_cast<std::size_t>(rank)]; }
  bool on_vote(int peer, const Vote& vote);
  bool on_round(int peer, const SettleRound& round);
  bool on_verdict(int peer, const Verdict& verdict);
  void close_ballot(Outcome outcome);
  Knowledge knowledge() const;
  void begin_round();
  void end_rounds();
  bool has_answered(int peer);
  bool round_is_complete();
  void go_on_without_the_absent();
  void give_up_on(const RankSet& ranks);
  void settle(std::uint64_t decided);

  int rank_;
  int world_size_;
  std::vector<std::optional<Ballot>> votes_;  // by rank, on ballot number decided_
  std::uint64_t decided_ = 0;
  Outcome outcome_ = Outcome::kNone;
  bool failed_ = false;
  bool settled_ = false;
  bool cut_off_ = false;  // somebody no longer counts on this rank: it can only listen
  RankSet absent_;        // whom this rank no longer counts on
  std::vector<std::optional<std::uint64_t>> stands_;  // by rank: where it has said that it stands for good

  std::uint32_t round_ = 0;
  Knowledge known_;
  Knowledge known_at_start_;  // of the round
  RankSet absent_at_start_;
  std::vector<std::vector<SettleRound>> rounds_;  // by rank: received and not used yet
  std::vector<AgreementMessage> outbox_;
};

}  // namespace deltawire
