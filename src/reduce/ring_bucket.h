// A bucket cut for the ring: partitions by owner, each a row of pieces of bounded size.
#pragma once

#include <cstdint>
#include <vector>

#include "reduce/bucket.h"

namespace deltawire {

// A longer part is cut at multiples of this, and a message holds no more elements: while one piece is
// decoded, added and encoded, the next is on the wire. 262,144 values are 84 ms of fp32 at 100 Mbit/s.
// docs/format.md, "Parts", states it: statistics and residuals belong to the cut parts.
inline constexpr std::uint64_t kRingPieceElements = 262144;

// The parts of one message, in `staged`.
using RingPiece = std::vector<Named>;

struct RingBucket final : Bucket {
  // Cuts the tensors; needs staging.
  void cut();

  // The rank so many places to the left.
  int left(int places) const { return ((rank() - places) % world() + world()) % world(); }
  int right() const { return (rank() + 1) % world(); }
  const std::vector<RingPiece>& partition(int owner) const {
    return partitions[static_cast<std::size_t>(owner)];
  }

  std::vector<std::vector<RingPiece>> partitions;  // by owner
};

}  // namespace deltawire
