// How a bootstrap ends: a rank that is connected to all others sends each of them one byte on the data
// stream, and ends its bootstrap when it has received that byte from all. So no rank begins to work, with
// deadlines, while others still connect. The mesh's messages follow on the same stream.
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

  // Sends and receives what is possible now on the data streams, and reads no byte beyond. `streams`:
  // PeerTable::data_streams. REQUIRES: this rank is connected to all. Errors: kCorrupt, naming the rank that
  // sent anything else.
  Status advance(const std::vector<PeerSockets>& sockets, const std::vector<std::uint32_t>& streams);

  bool is_complete() const noexcept { return silent_rank_ == own_; }
  // A rank that has not sent its byte. REQUIRES: advance(), !is_complete().
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
