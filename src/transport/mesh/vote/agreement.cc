#include "transport/mesh/vote/agreement.h"

#include <algorithm>

namespace deltawire {

void Knowledge::add(int voter, const Ballot& cast) noexcept {
  Knowledge one{decided, RankSet(voters), cast};
  one.voters.add(voter);
  merge(one);
}

// The side that knows of more decided ballots knows more: votes on an older ballot are obsolete.
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

Agreement::Agreement(int rank, int world_size)
    : rank_(rank),
      world_size_(world_size),
      ballot_(rank, world_size),
      absent_(world_size),
      stands_(static_cast<std::size_t>(world_size)),
      rounds_(rank, world_size) {}

RankSet Agreement::unheard() const {
  RankSet unheard(world_size_);
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_ && stands_[static_cast<std::size_t>(rank)] != decided()) unheard.add(rank);
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
  assert(!failed_ && !ballot_.is_pending());
  ballot_.cast(ballot);
  outbox_.emplace_back(Vote{decided(), ballot});
}

bool Agreement::receive(int peer, const AgreementMessage& message) {
  assert(peer >= 0 && peer < world_size_ && peer != rank_);
  if (const auto* vote = std::get_if<Vote>(&message)) return on_vote(peer, *vote);
  if (const auto* round = std::get_if<SettleRound>(&message)) return on_round(peer, *round);
  return on_verdict(peer, std::get<Verdict>(message));
}

// A rank without an open ballot of its own knows the verdict at once: nobody can have decided a ballot that
// this rank did not vote on. So does a rank that has seen two ballots differ.
void Agreement::fail(const RankSet& silent) {
  assert(!silent.has(rank_));
  if (failed_) return;
  failed_ = true;
  absent_.add(silent);
  known_ = ballot_.knowledge();
  if (!ballot_.is_pending() || known_.split) {
    settle(decided());
  } else {
    begin_round();
    end_rounds();
  }
}

bool Agreement::on_round(int peer, const SettleRound& round) {
  if (!failed_) fail(RankSet(world_size_));
  if (settled_ || cut_off_ || absent_.has(peer)) return true;  // having settled, the verdict is the answer
  if (round.absent.has(rank_)) {
    cut_off_ = true;
    return true;
  }
  if (!rounds_.add(peer, round)) return false;
  absent_.add(round.absent);
  end_rounds();
  return true;
}

// A round is the last one if all ranks that are not absent began it with the same knowledge and the same
// absent ranks: none of them can learn anything new afterwards.
void Agreement::end_rounds() {
  while (!settled_ && !cut_off_ && rounds_.is_complete(absent_)) {
    const bool same = rounds_.end(known_, absent_);
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
  const bool was_pending = ballot_.is_pending();
  if (verdict.decided != decided() && !(was_pending && verdict.decided == decided() + 1)) {
    // The sender has another verdict: it belongs to the other side of a split network.
    if (!failed_) fail(RankSet(world_size_));
    return true;
  }
  failed_ = true;
  give_up_on(verdict.absent);
  settle(verdict.decided);
  return true;
}

// Another rank gave up on them: nobody needs to wait for them again.
void Agreement::give_up_on(const RankSet& ranks) {
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_ && ranks.has(rank)) absent_.add(rank);
  }
}

void Agreement::on_left(int peer, std::uint64_t decided) {
  assert(peer >= 0 && peer < world_size_ && peer != rank_);
  stands_[static_cast<std::size_t>(peer)] = decided;
  if (absent_.has(peer)) return;
  absent_.add(peer);
  if (ballot_.is_pending() && decided == ballot_.number() + 1) {
    // The peer has all votes on the open ballot, and leaves with that knowledge.
    if (failed_) {
      settle(decided);
    } else {
      ballot_.close(Outcome::kUnanimous);
    }
  } else if (failed_ && !settled_) {
    go_on_without_the_absent();
  }
}

void Agreement::on_gone(int peer) {
  assert(peer >= 0 && peer < world_size_ && peer != rank_);
  absent_.add(peer);
  if (failed_ && !settled_) go_on_without_the_absent();
}

bool Agreement::give_up_waiting() {
  if (!failed_ || concluded()) return false;
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == rank_) continue;
    if (cut_off_ || settled_ || !rounds_.has_answered(peer)) absent_.add(peer);
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
  assert(failed_ && !settled_);
  assert(decided >= ballot_.number());
  settled_ = true;
  if (ballot_.is_pending())
    ballot_.close(decided > ballot_.number() ? Outcome::kUnanimous : Outcome::kReverted);
  outbox_.emplace_back(Verdict{decided, absent_});
}

namespace {

// A rank that is ahead is at most one round ahead; then it waits for this one.
constexpr std::size_t kRoundsHeld = 2;

}  // namespace

SettleRound SettleRounds::begin(const Knowledge& known, const RankSet& absent) {
  ++number_;
  known_at_start_ = known;
  absent_at_start_ = absent;
  return {number_, known, absent};
}

bool SettleRounds::add(int peer, const SettleRound& round) {
  assert(peer != rank_ && of(peer).size() <= kRoundsHeld);
  if (of(peer).size() == kRoundsHeld) return false;
  of(peer).push_back(round);
  return true;
}

bool SettleRounds::has_answered(int peer) {
  auto& rounds = of(peer);
  while (!rounds.empty() && rounds.front().number < number_) rounds.erase(rounds.begin());
  return !rounds.empty();
}

bool SettleRounds::is_complete(const RankSet& absent) {
  for (int peer = 0; peer < static_cast<int>(received_.size()); ++peer) {
    if (peer != rank_ && !absent.has(peer) && !has_answered(peer)) return false;
  }
  return true;
}

bool SettleRounds::end(Knowledge& known, const RankSet& absent) {
  bool same = absent == absent_at_start_;
  for (int peer = 0; peer < static_cast<int>(received_.size()); ++peer) {
    if (peer == rank_ || absent.has(peer)) continue;
    assert(!of(peer).empty() && of(peer).front().number >= number_);
    const SettleRound& round = of(peer).front();
    same = same && round.known == known_at_start_ && round.absent == absent_at_start_;
    known.merge(round.known);
    of(peer).erase(of(peer).begin());
  }
  return same;
}

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
