// This rank's sequence of steps. It checks that all ranks have the same sequence: they start anew at the same
// points, with the same numbers.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/mesh/peers.h"

namespace deltawire {

class StepSequence {
 public:
  // `peers` must outlive it.
  explicit StepSequence(Peers& peers) noexcept : peers_(peers) {}

  // How many buckets this rank has begun.
  std::uint64_t place() const noexcept { return place_; }

  // This rank begins a bucket of this step; tells the others if its steps start anew. The error: another rank
  // continues at another step.
  std::optional<Error> arrive(std::uint64_t step);
  // It votes for the step.
  void end_step() noexcept { is_open_ = false; }

  // The peer's steps start anew. `vote_is_missing`: the peer has not voted on this rank's open ballot.
  std::optional<Error> on_start(Peer& peer, const Start& start, bool vote_is_missing);

 private:
  std::optional<Error> compare(const Peer& peer) const;

  Peers& peers_;
  std::uint64_t place_ = 0;
  std::uint32_t starts_ = 0;  // how often this rank's steps started anew
  std::uint64_t start_step_ = 0;
  std::uint64_t last_step_ = 0;
  bool is_open_ = false;  // a step has begun, and this rank has not voted for it
};

}  // namespace deltawire
