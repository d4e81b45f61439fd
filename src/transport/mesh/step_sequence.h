// Where this rank's steps are, and whether all ranks' steps go on alike: they begin anew at the same points,
// with the same numbers.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/mesh/peers.h"

namespace deltawire {

class StepSequence {
 public:
  // `peers` outlive it.
  explicit StepSequence(Peers& peers) noexcept : peers_(peers) {}

  // Buckets that this rank has begun.
  std::uint64_t place() const noexcept { return place_; }

  // This rank begins a bucket of this step; tells the others where its steps begin anew. The error: another
  // rank's steps go on elsewhere.
  std::optional<Error> arrive(std::uint64_t step);
  // It votes for the step.
  void end_step() noexcept { is_open_ = false; }

  // The peer's steps begin anew. `vote_is_missing`: on this rank's open ballot, the peer's.
  std::optional<Error> on_start(Peer& peer, const Start& start, bool vote_is_missing);

 private:
  std::optional<Error> compare(const Peer& peer) const;

  Peers& peers_;
  std::uint64_t place_ = 0;
  std::uint32_t starts_ = 0;  // how often this rank's steps began anew
  std::uint64_t start_step_ = 0;
  std::uint64_t last_step_ = 0;
  bool is_open_ = false;  // a step has begun, and was not voted for
};

}  // namespace deltawire
