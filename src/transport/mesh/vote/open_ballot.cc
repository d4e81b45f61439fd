#include "transport/mesh/vote/open_ballot.h"

#include <algorithm>
#include <cassert>

namespace deltawire {

int OpenBallot::first_missing() const noexcept {
  const auto missing = std::ranges::find_if(votes_, [](const auto& vote) { return !vote; });
  return missing == votes_.end() ? -1 : static_cast<int>(missing - votes_.begin());
}

Knowledge OpenBallot::knowledge() const {
  const auto world_size = static_cast<int>(votes_.size());
  Knowledge known{number_, RankSet(world_size)};
  for (int rank = 0; rank < world_size; ++rank) {
    if (has_vote_of(rank)) known.add(rank, of(rank));
  }
  return known;
}

void OpenBallot::cast(const Ballot& ballot) noexcept {
  assert(!is_pending() && !has_vote_of(rank_));
  outcome_ = Outcome::kOpen;
  votes_[at(rank_)] = ballot;
}

bool OpenBallot::take(int peer, const Vote& vote) noexcept {
  assert(peer != rank_);
  if (vote.number < number_) return true;  // on a ballot that already counts
  if (is_pending() && vote.number == number_ + 1) close(Outcome::kUnanimous);
  if (vote.number != number_ || has_vote_of(peer)) return false;
  votes_[at(peer)] = vote.ballot;
  return true;
}

void OpenBallot::count() noexcept {
  assert(outcome_ == Outcome::kOpen && first_missing() < 0);
  const Ballot own = of(rank_);
  const bool alike = std::ranges::all_of(votes_, [&own](const auto& vote) { return *vote == own; });
  if (alike) {
    close(Outcome::kUnanimous);
  } else {
    outcome_ = Outcome::kSplit;
  }
}

void OpenBallot::close(Outcome outcome) noexcept {
  assert(is_pending());
  assert(outcome == Outcome::kUnanimous || outcome == Outcome::kReverted);
  outcome_ = outcome;
  for (auto& vote : votes_) vote.reset();
  if (outcome == Outcome::kUnanimous) ++number_;
}

}  // namespace deltawire
