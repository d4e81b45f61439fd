// The incoming connections of a mesh until their handshakes are complete. A peer is a stranger with little
// time and little memory until it has proved that it knows the token; from then on it is a rank, and only the
// mesh's connect_timeout limits it.
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

namespace deltawire {

class PendingConnections {
 public:
  // `policy` must outlive it.
  PendingConnections(std::unique_ptr<TcpListener> listener, int world_size,
                     const EncryptionPolicy& policy) noexcept;

  // Accepts connections, continues handshakes, and adds ranks of this mesh to `peer_table`; strangers are
  // silently disconnected. Errors: a rank with the right token does not belong to the mesh, or descriptors
  // have run out.
  Status advance(Deadline now, PeerTable& peer_table);

  void add_interests(Deadline now, std::vector<pollfd>& polls) const;
  // When to disconnect a silent stranger, or to try accepting again.
  Deadline wake_at() const noexcept;

  // Hangs up on all pending connections: ranks will connect again.
  void send_away() noexcept {
    strangers_.clear();
    ranks_.clear();
  }

  // How many had another token.
  int refused() const noexcept { return refused_; }

 private:
  struct PendingConnection {
    Greeting greeting;
    Deadline heard_at;  // when it connected, or last completed a message
  };

  Status accept_all(Deadline now, const PeerTable& peer_table);
  bool make_room(Deadline now);
  void hear_strangers(Deadline now);
  Status hear_ranks(PeerTable& peer_table);
  static Status welcome(Greeting& greeting, PeerTable& peer_table);

  std::unique_ptr<TcpListener> listener_;
  const EncryptionPolicy& policy_;
  std::size_t strangers_max_;
  std::deque<PendingConnection> strangers_;  // the oldest first
  std::deque<PendingConnection> ranks_;      // their proofs are verified, and the rest is missing
  Deadline accept_at_{};
  DescriptorShortage shortage_;
  int refused_ = 0;
};

}  // namespace deltawire
