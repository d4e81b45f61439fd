#include "transport/mesh/agreement.h"

#include <algorithm>

namespace deltawire {
namespace {

// A rank that is ahead is at most one round ahead; then it waits for this one.
constexpr std::size_t kRoundsHeld = 2;

}  // namespace

void Knowledge::add(int voter, const Ballot& cast) noexcept {
  Knowledge one{decided, RankSet(voters), cast};
  one.voters.add(voter);
  merge(one);
}

// Whoever knows of more decided ballots knows more: votes on an older ballot say nothing any more.
void Knowledge::merge(const Knowledge& other) noexcept {
  if (other.decided < decided) return;
  if (other.decided > decided) {
    *this = other;
    return;
  }
  if (other.voters.count() > 0) {
    split = split || (voters.count() > 0 && ballot != other.ballot);
    ballot = other.ballot;
    voters.add(other.voters);
  }
}

std::uint64_t Knowledge::verdict(int world_size) const noexcept {
  return !split && voters.count() == world_size ? decided + 1 : decided;
}

Agreement::Agreement(int rank, int world_size)
    : rank_(rank),
      world_size_(world_size),
      votes_(static_cast<std::size_t>(world_size)),
      absent_(world_size),
      stands_(static_cast<std::size_t>(world_size)),
      rounds_(static_cast<std::size_t>(world_size)) {}

RankSet Agreement::unheard() const {
  RankSet unheard(world_size_);
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_ && stands_[static_cast<std::size_t>(rank)] != decided_) unheard.add(rank);
  }
  return unheard;
}

bool Agreement::concluded() const noexcept {
  if (!settled_) return false;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_ && !absent_.has(rank) && !stands_[static_cast<std::size_t>(rank)]) return false;
  }
  return true;
}

void Agreement::cast(const Ballot& ballot) {
  outcome_ = Outcome::kOpen;
  vote_of(rank_) = ballot;
  outbox_.emplace_back(Vote{decided_, ballot});
}

int Agreement::first_missing() const noexcept {
  const auto missing = std::ranges::find_if(votes_, [](const auto& vote) { return !vote; });
  return missing == votes_.end() ? -1 : static_cast<int>(missing - votes_.begin());
}

bool Agreement::receive(int peer, const AgreementMessage& message) {
  if (const auto* vote = std::get_if<Vote>(&message)) return on_vote(peer, *vote);
  if (const auto* round = std::get_if<SettleRound>(&message)) return on_round(peer, *round);
  return on_verdict(peer, std::get<Verdict>(message));
}

bool Agreement::on_vote(int peer, const Vote& vote) {
  if (failed_) return true;  // too late to count: what this rank knew when it failed is on its way to all
  if (vote.number < decided_) return true;  // on a ballot that is known to count by now
  if (pending() && vote.number == decided_ + 1) close_ballot(Outcome::kUnanimous);
  if (vote.number != decided_ || vote_of(peer)) return false;
  vote_of(peer) = vote.ballot;
  return true;
}

void Agreement::count() {
  const Ballot own = *vote_of(rank_);
  const bool alike = std::ranges::all_of(votes_, [&own](const auto& vote) { return *vote == own; });
  if (alike) {
    close_ballot(Outcome::kUnanimous);
  } else {
    outcome_ = Outcome::kSplit;
  }
}

void Agreement::close_ballot(Outcome outcome) {
  outcome_ = outcome;
  for (auto& vote : votes_) vote.reset();
  if (outcome == Outcome::kUnanimous) ++decided_;
}

Knowledge Agreement::knowledge() const {
  Knowledge known{decided_, RankSet(world_size_)};
  for (int rank = 0; rank < world_size_; ++rank) {
    const auto& vote = votes_[static_cast<std::size_t>(rank)];
    if (vote) known.add(rank, *vote);
  }
  return known;
}

// Without an open ballot of its own a rank knows the verdict at once: nobody can have decided a ballot that
// this rank did not vote on. So does one that has seen two ballots differ.
void Agreement::fail(const RankSet& silent) {
  if (failed_) return;
  failed_ = true;
  absent_.add(silent);
  known_ = knowledge();
  if (!pending() || known_.split) {
    settle(decided_);
  } else {
    begin_round();
    end_rounds();
  }
}

void Agreement::begin_round() {
  ++round_;
  known_at_start_ = known_;
  absent_at_start_ = absent_;
  outbox_.emplace_back(SettleRound{round_, known_, absent_});
}

bool Agreement::on_round(int peer, const SettleRound& round) {
  if (!failed_) fail(RankSet(world_size_));
  if (settled_ || cut_off_ || absent_.has(peer)) return true;  // having settled, the verdict is the answer
  if (round.absent.has(rank_)) {
    cut_off_ = true;
    return true;
  }
  if (rounds_of(peer).size() == kRoundsHeld) return false;
  rounds_of(peer).push_back(round);
  absent_.add(round.absent);
  end_rounds();
  return true;
}

// Whether the peer has said what it knew when this round began.
bool Agreement::has_answered(int peer) {
  auto& rounds = rounds_of(peer);
  while (!rounds.empty() && rounds.front().number < round_) rounds.erase(rounds.begin());
  return !rounds.empty();
}

bool Agreement::round_is_complete() {
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer != rank_ && !absent_.has(peer) && !has_answered(peer)) return false;
  }
  return true;
}

// A round in which all who count began with the same knowledge and the same absent ranks is the last one:
// none of them can learn anything new from then on.
void Agreement::end_rounds() {
  while (!settled_ && !cut_off_ && round_is_complete()) {
    bool same = absent_ == absent_at_start_;
    for (int peer = 0; peer < world_size_; ++peer) {
      if (peer == rank_ || absent_.has(peer)) continue;
      const SettleRound& round = rounds_of(peer).front();
      same = same && round.known == known_at_start_ && round.absent == absent_at_start_;
      known_.merge(round.known);
      rounds_of(peer).erase(rounds_of(peer).begin());
    }
    if (same || known_.split) {
      settle(known_.verdict(world_size_));
    } else {
      begin_round();
    }
  }
}

bool Agreement::on_verdict(int peer, const Verdict& verdict) {
  stands_[static_cast<std::size_t>(peer)] = verdict.decided;
  if (settled_) give_up_on(verdict.absent);
  if (settled_ || !takes_from(peer)) return true;
  const bool was_pending = pending();
  if (verdict.decided != decided_ && !(was_pending && verdict.decided == decided_ + 1)) {
    // The sender stands elsewhere: it belongs to the other side of a split network.
    if (!failed_) fail(RankSet(world_size_));
    return true;
  }
  failed_ = true;
  give_up_on(verdict.absent);
  settle(verdict.decided);
  return true;
}

// Another rank did: nobody needs to wait for them again.
void Agreement::give_up_on(const RankSet& ranks) {
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_ && ranks.has(rank)) absent_.add(rank);
  }
}

void Agreement::on_left(int peer, std::uint64_t decided) {
  stands_[static_cast<std::size_t>(peer)] = decided;
  if (absent_.has(peer)) return;
  absent_.add(peer);
  if (pending() && decided == decided_ + 1) {
    // The peer has everybody's votes on the open ballot, and takes that knowledge along.
    if (failed_) {
      settle(decided);
    } else {
      close_ballot(Outcome::kUnanimous);
    }
  } else if (failed_ && !settled_) {
    go_on_without_the_absent();
  }
}

void Agreement::on_gone(int peer) {
  absent_.add(peer);
  if (failed_ && !settled_) go_on_without_the_absent();
}

void Agreement::go_on_without_the_absent() {
  end_rounds();
  // Nobody is left to give this rank a verdict.
  if (cut_off_ && absent_.count() == world_size_ - 1) settle(known_.verdict(world_size_));
}

bool Agreement::give_up_waiting() {
  if (!failed_ || concluded()) return false;
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == rank_) continue;
    if (cut_off_ || settled_ || !has_answered(peer)) absent_.add(peer);
  }
  if (settled_) return true;
  if (cut_off_) {
    settle(known_.verdict(world_size_));
  } else {
    end_rounds();
  }
  return true;
}

void Agreement::settle(std::uint64_t decided) {
  settled_ = true;
  if (pending()) close_ballot(decided > decided_ ? Outcome::kUnanimous : Outcome::kReverted);
  outbox_.emplace_back(Verdict{decided, absent_});
}

}  // namespace deltawire
