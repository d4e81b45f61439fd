// The current or next ballot: who has voted how, as far as this rank knows.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/mesh/vote/agreement_message.h"

namespace deltawire {

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

}  // namespace deltawire
