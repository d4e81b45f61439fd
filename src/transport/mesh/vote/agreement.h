// The ranks of a mesh agree on which steps count. This is a state machine without clocks and without I/O, so
// that a test can drive it through every order of messages and crashes. docs/design/commit.md has the
// protocol and its proof. After std::bad_alloc it is unusable, so callers try changes on a copy; receive() of
// a Vote needs no memory.
//
// As long as nothing fails, a ballot counts when every rank has cast the same one. When the mesh fails, the
// surviving ranks settle whether the open ballot counts, for all of them or for none. Then each announces its
// verdict; nothing is known of ranks that have not.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire {

// A set of ranks of one mesh.
class RankSet {
 public:
  RankSet() = default;
  explicit RankSet(int world_size) : bytes_((static_cast<std::size_t>(world_size) + 7) / 8) {}

  bool has(int rank) const noexcept {
    assert(rank >= 0 && at(rank) < bytes_.size());
    return (bytes_[at(rank)] & bit(rank)) != std::byte{0};
  }
  void add(int rank) noexcept {
    assert(rank >= 0 && at(rank) < bytes_.size());
    bytes_[at(rank)] |= bit(rank);
  }
  void add(const RankSet& other) noexcept {
    assert(other.bytes_.size() == bytes_.size());
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] |= other.bytes_[i];
  }
  int count() const noexcept {
    int total = 0;
    for (const std::byte each : bytes_) total += std::popcount(static_cast<std::uint8_t>(each));
    return total;
  }
  bool operator==(const RankSet&) const = default;

  // Rank r is bit r % 8 of byte r / 8, as in a control message.
  Bytes bytes() const noexcept { return bytes_; }
  MutBytes bytes() noexcept { return bytes_; }

 private:
  static std::size_t at(int rank) noexcept { return static_cast<std::size_t>(rank) / 8; }
  static std::byte bit(int rank) noexcept { return std::byte{1} << (rank % 8); }

  std::vector<std::byte> bytes_;
};

// What a rank knows about the ballots: how many were unanimous, and who has voted how on the next one.
struct Knowledge {
  std::uint64_t decided = 0;
  RankSet voters;      // on ballot number `decided`
  Ballot ballot = {};  // theirs; meaningless without voters
  bool split = false;  // two of them differ; a rank that knows this needs no rounds, so it is never sent

  void add(int voter, const Ballot& cast) noexcept;
  void merge(const Knowledge& other) noexcept;
  // The number of ballots that count, according to this knowledge.
  std::uint64_t verdict(int world_size) const noexcept {
    assert(voters.count() <= world_size);
    return !split && voters.count() == world_size ? decided + 1 : decided;
  }
  bool operator==(const Knowledge&) const = default;
};

// A rank's ballot. A vote on ballot number n also says that those before n were unanimous.
struct Vote {
  std::uint64_t number = 0;  // from 0
  Ballot ballot;

  bool operator==(const Vote&) const = default;
};

// One round of settling: all that the sender knew when the round began, and the ranks it has given up on.
struct SettleRound {
  std::uint32_t number = 0;  // from 1
  Knowledge known;
  RankSet absent;

  bool operator==(const SettleRound&) const = default;
};

// The sender has settled: its final number of ballots that count. It has given up on the absent ranks.
struct Verdict {
  std::uint64_t decided = 0;
  RankSet absent;

  bool operator==(const Verdict&) const = default;
};

using AgreementMessage = std::variant<Vote, SettleRound, Verdict>;

// The current or next ballot: who has voted how, as far as this rank knows.
class OpenBallot {
 public:
  // The state of the ballot that this rank cast last.
  enum class Outcome : std::uint8_t {
    kNone,       // none is open
    kOpen,       // votes are missing, or the failed mesh has not settled yet
    kUnanimous,  // it counts
    kSplit,      // all have voted, and the votes differ, as of() shows
    kReverted,   // it does not count, on any participating rank
  };

  OpenBallot(int rank, int world_size) : rank_(rank), votes_(static_cast<std::size_t>(world_size)) {}

  Outcome outcome() const noexcept { return outcome_; }
  // Its number, which is also how many before it count.
  std::uint64_t number() const noexcept { return number_; }
  // Whether this rank has voted and the ballot is not decided.
  bool is_pending() const noexcept { return outcome_ == Outcome::kOpen || outcome_ == Outcome::kSplit; }
  bool has_vote_of(int rank) const noexcept { return votes_[at(rank)].has_value(); }
  const Ballot& of(int rank) const noexcept {
    assert(has_vote_of(rank));
    return *votes_[at(rank)];
  }
  // The lowest rank whose vote is missing; -1 if none is.
  int first_missing() const noexcept;
  // All that the votes say.
  Knowledge knowledge() const;

  // This rank votes.
  void cast(const Ballot& ballot) noexcept;
  // `peer` votes; false if that violates the protocol. A vote on the next ballot says that this one was
  // unanimous.
  bool take(int peer, const Vote& vote) noexcept;
  // All have voted: decides whether they were unanimous.
  void count() noexcept;
  // Closes the decided ballot. The next one has the next number, or this one again.
  void close(Outcome outcome) noexcept;

  bool operator==(const OpenBallot&) const = default;

 private:
  static std::size_t at(int rank) noexcept { return static_cast<std::size_t>(rank); }

  int rank_;
  std::uint64_t number_ = 0;
  Outcome outcome_ = Outcome::kNone;
  std::vector<std::optional<Ballot>> votes_;  // by rank
};

// The rounds in which ranks exchange what they know of an open ballot, after a failure.
class SettleRounds {
 public:
  SettleRounds(int rank, int world_size) : rank_(rank), received_(static_cast<std::size_t>(world_size)) {}

  // Begins the next round with what this rank knows, and without the absent; returns the message to send.
  SettleRound begin(const Knowledge& known, const RankSet& absent);
  // A round of `peer`; false if sending it now violates the protocol.
  bool add(int peer, const SettleRound& round);
  // Whether the peer has sent what it knew when this round began.
  bool has_answered(int peer);
  // Whether all peers have, except the absent ones.
  bool is_complete(const RankSet& absent);
  // Ends the round: merges what they knew into `known`. True: all ranks that are not absent began with the
  // same knowledge and the same absent ranks, so none can learn anything new any more. After
  // is_complete().
  bool end(Knowledge& known, const RankSet& absent);

  bool operator==(const SettleRounds&) const = default;

 private:
  std::vector<SettleRound>& of(int peer) noexcept { return received_[static_cast<std::size_t>(peer)]; }

  int rank_;
  std::uint32_t number_ = 0;
  Knowledge known_at_start_;
  RankSet absent_at_start_;
  std::vector<std::vector<SettleRound>> received_;  // by rank; not used yet
};

class Agreement {
 public:
  Agreement(int rank, int world_size);

  using Outcome = OpenBallot::Outcome;
  Outcome outcome() const noexcept { return ballot_.outcome(); }
  // The open ballot, or the next one.
  const OpenBallot& ballot() const noexcept { return ballot_; }
  // How many ballots count, on every rank.
  std::uint64_t decided() const noexcept { return ballot_.number(); }
  bool failed() const noexcept { return failed_; }
  // Whether decided() is final, after a failure.
  bool settled() const noexcept { return settled_; }
  // Whether this rank knows the verdicts of all other ranks that are not absent.
  bool concluded() const noexcept;
  // Ranks that have not confirmed this rank's verdict, by their own verdict or when they left normally.
  // REQUIRES: failed().
  RankSet unheard() const;

  // This rank, which has no open ballot, votes.
  void cast(const Ballot& ballot);
  // All have voted on the open ballot.
  bool may_count() const noexcept {
    return !failed_ && outcome() == Outcome::kOpen && ballot_.first_missing() < 0;
  }
  // Decides the open ballot. If this rank was frozen, the others may have given up on it before they had its
  // vote; so the caller must read all messages after sending its vote and before this.
  void count() noexcept {
    assert(may_count());
    ballot_.count();
  }

  // Handles a message from `peer`; false if it violates the protocol.
  bool receive(int peer, const AgreementMessage& message);
  // `peer` left normally, with that many ballots that count.
  void on_left(int peer, std::uint64_t decided);
  // `peer` is gone, or may be.
  void on_gone(int peer);
  // The mesh has failed; the ranks in `silent`, none of them this one, don't answer.
  void fail(const RankSet& silent);
  // Time is up: continues without the ranks that have not answered. True if there were any.
  bool give_up_waiting();

  // Messages to send to all peers, in order; the caller empties it.
  std::vector<AgreementMessage>& outbox() noexcept { return outbox_; }

  // Equal states behave the same from now on: for a test that explores them.
  bool operator==(const Agreement&) const = default;

 private:
  bool takes_from(int peer) const noexcept { return !absent_.has(peer) || cut_off_; }
  bool on_vote(int peer, const Vote& vote) {
    if (failed_) return true;  // too late to count: this rank has already sent what it knew when it failed
    return ballot_.take(peer, vote);
  }
  bool on_round(int peer, const SettleRound& round);
  bool on_verdict(int peer, const Verdict& verdict);
  void begin_round() {
    assert(failed_ && !settled_ && ballot_.is_pending());
    outbox_.emplace_back(rounds_.begin(known_, absent_));
  }
  void end_rounds();
  void go_on_without_the_absent() {
    end_rounds();
    // Nobody is left to give this rank a verdict.
    if (cut_off_ && absent_.count() == world_size_ - 1) settle(known_.verdict(world_size_));
  }
  void give_up_on(const RankSet& ranks);
  void settle(std::uint64_t decided);

  int rank_;
  int world_size_;
  OpenBallot ballot_;
  bool failed_ = false;
  bool settled_ = false;
  bool cut_off_ = false;  // some rank has given up on this one, which can only listen now
  RankSet absent_;        // the ranks that this rank has given up on
  std::vector<std::optional<std::uint64_t>> stands_;  // by rank: its final verdict, once announced
  Knowledge known_;
  SettleRounds rounds_;
  std::vector<AgreementMessage> outbox_;
};

}  // namespace deltawire
