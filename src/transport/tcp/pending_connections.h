// The incoming connections of a mesh until their handshakes are complete. Who has proved that it knows the
// token is a rank, and only the mesh's connect_timeout limits it.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include <poll.h>

#include "transport/links/link.h"
#include "transport/tcp/descriptors.h"
#include "transport/tcp/greeting.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/peer_table.h"
#include "transport/tcp/strangers.h"

namespace deltawire {

class PendingConnections {
 public:
  // `policy` must outlive it.
  PendingConnections(std::unique_ptr<TcpListener> listener, int world_size, const EncryptionPolicy& policy);

  // Accepts connections, continues handshakes, and adds ranks of this mesh to `peer_table`; strangers are
  // silently disconnected. Errors: a rank with the right token does not belong to the mesh, or descriptors
  // have run out.
  Status advance(Deadline now, PeerTable& peer_table);

  void add_interests(Deadline now, std::vector<pollfd>& polls) const;
  Deadline wake_at() const noexcept { return strangers_.wake_at(); }

  // Hangs up on all pending connections: ranks will connect again.
  void send_away() noexcept {
    strangers_.send_away();
    ranks_.clear();
  }

  // How many had another token.
  int refused() const noexcept { return strangers_.refused(); }

 private:
  Status hear_ranks(PeerTable& peer_table);
  static Status welcome(Greeting& greeting, PeerTable& peer_table);

  Strangers strangers_;
  std::deque<Greeting> ranks_;  // their proofs are verified, and the rest is missing
  DescriptorShortage shortage_;
};

}  // namespace deltawire
