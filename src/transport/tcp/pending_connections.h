// The incoming connections of a mesh until their handshakes are through. Whoever knocks is a stranger with
// little time and little room, until he has proved that he knows the token; from then on he is a rank, and
// only the mesh's time to connect ends his.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include <poll.h>

#include "transport/links/link.h"
#include "transport/tcp/descriptors.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/peer_table.h"

namespace deltawire {

class PendingConnections {
 public:
  PendingConnections(std::unique_ptr<TcpListener> listener, int world_size) noexcept;

  // Accepts, reads, and enters ranks of this mesh in `peer_table`; strangers are turned away in silence. An
  // error is a rank with the right token that doesn't fit, or descriptors that have run out.
  Status advance(Deadline now, PeerTable& peer_table);

  void add_interests(Deadline now, std::vector<pollfd>& polls) const;
  // When a silent stranger is to be turned away, or accepting is to be tried again.
  Deadline wake_at() const noexcept;

  // Hangs up on all that are not through: they will knock again.
  void send_away() noexcept {
    strangers_.clear();
    ranks_.clear();
  }

  // How many came with another token.
  int refused() const noexcept { return refused_; }

 private:
  struct PendingConnection {
    GuardedFd socket;
    Handshake handshake;
    Deadline heard_at;  // came, or said something whole
  };

  Status accept_all(Deadline now, const PeerTable& peer_table);
  bool make_room(Deadline now);
  void hear_strangers(Deadline now);
  Status hear_ranks(PeerTable& peer_table);
  static Status welcome(PendingConnection& connection, PeerTable& peer_table);

  std::unique_ptr<TcpListener> listener_;
  std::size_t strangers_max_;
  std::deque<PendingConnection> strangers_;  // the oldest first
  std::deque<PendingConnection> ranks_;      // whose proofs are good; they still have to say the rest
  Deadline accept_at_{};
  DescriptorShortage shortage_;
  int refused_ = 0;
};

}  // namespace deltawire
