// How a bootstrap ends: a rank that has met all others says so to each of them, one byte on the data stream,
// and leaves when it has heard it from all. So nobody begins to work, with deadlines, while others still
// connect. Messages of the mesh follow on the same stream.
#pragma once

#include <cstdint>
#include <vector>

#include <poll.h>

#include "deltawire/result.h"
#include "transport/mesh/make_mesh.h"

namespace deltawire {

// Thread rule: one thread.
class RollCall {
 public:
  RollCall(int rank, int world_size);

  // Says and hears what the data streams take and give now, and no byte more. `streams`:
  // PeerTable::data_streams. REQUIRES: this rank has met all. Errors: kCorrupt, naming the rank that said
  // anything else.
  Status advance(const std::vector<PeerSockets>& sockets, const std::vector<std::uint32_t>& streams);

  bool is_complete() const noexcept { return silent_rank_ == own_; }
  // A rank that has not said that it has met all. REQUIRES: advance(), !is_complete().
  int silent_rank() const noexcept { return silent_rank_; }

  void add_interests(const std::vector<PeerSockets>& sockets, std::vector<pollfd>& polls) const;

 private:
  struct Call {
    std::uint32_t stream = 0;  // its number in PeerTable::data_streams
    bool said = false;
    bool heard = false;
  };

  int own_;
  int silent_rank_;
  std::vector<Call> calls_;  // by rank
};

}  // namespace deltawire
