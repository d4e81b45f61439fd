// The rounds in which ranks exchange what they know of an open ballot, after a failure.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/mesh/vote/agreement_message.h"

namespace deltawire {

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

}  // namespace deltawire
