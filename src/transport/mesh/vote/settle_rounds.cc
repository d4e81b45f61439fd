#include "transport/mesh/vote/settle_rounds.h"

#include <cassert>

namespace deltawire {
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

}  // namespace deltawire
