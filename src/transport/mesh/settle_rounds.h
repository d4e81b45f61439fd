// The rounds in which ranks tell each other what they know of an open ballot, after a failure.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/mesh/agreement_message.h"

namespace deltawire {

class SettleRounds {
 public:
  SettleRounds(int rank, int world_size) : rank_(rank), received_(static_cast<std::size_t>(world_size)) {}

  // Begins the next round with what this rank knows, and without the absent: what it sends.
  SettleRound begin(const Knowledge& known, const RankSet& absent);
  // A round of `peer`; false if no rank that keeps to the protocol would send it now.
  bool add(int peer, const SettleRound& round);
  // Whether the peer has said what it knew when this round began.
  bool has_answered(int peer);
  // Whether all have, but for the absent.
  bool is_complete(const RankSet& absent);
  // Ends the round: what they knew comes into `known`. True: all who count began with the same knowledge and
  // the same absent ranks, so none of them can learn anything new from then on. REQUIRES: is_complete().
  bool end(Knowledge& known, const RankSet& absent);

  bool operator==(const SettleRounds&) const = default;

 private:
  std::vector<SettleRound>& of(int peer) noexcept { return received_[static_cast<std::size_t>(peer)]; }

  int rank_;
  std::uint32_t number_ = 0;
  Knowledge known_at_start_;
  RankSet absent_at_start_;
  std::vector<std::vector<SettleRound>> received_;  // by rank, and not used yet
};

}  // namespace deltawire
