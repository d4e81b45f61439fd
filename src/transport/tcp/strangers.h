// The connections that a listener has accepted, until they have proved that they know the token. Each has
// little time and memory, and there are only so many of them: when more come, one from the address that has
// the most of them gives way, a silent one first, and otherwise any. So many strangers make somebody with the
// token come again, at worst, and keep nobody out.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include <poll.h>

#include "transport/links/link.h"
#include "transport/tcp/descriptors.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/peer_table.h"

namespace deltawire {

class Strangers {
 public:
  // `policy` must outlive it.
  Strangers(std::unique_ptr<TcpListener> listener, std::size_t places, const EncryptionPolicy& policy);

  // Accepts who has come. Returns why nobody can be accepted at present, an errno, e.g. because descriptors
  // have run out; 0 if there is no reason.
  int accept_all(Deadline now, const Token& token, const Claims& own);

  // Continues the handshakes; returns those whose other ends have proved that they know the token. Hangs up
  // on those with another one, and on who is silent.
  std::vector<Greeting> hear(Deadline now);

  // Hangs up on all.
  void send_away() noexcept { strangers_.clear(); }

  void add_interests(Deadline now, std::vector<pollfd>& polls) const {
    if (now >= accept_at_) listener_->add_interests(polls);
    for (const Stranger& each : strangers_) polls.push_back({each.greeting.fd(), each.greeting.awaits(), 0});
  }
  // When to hang up on a silent one, or to try accepting again.
  Deadline wake_at() const noexcept;

  Endpoint endpoint() const { return listener_->endpoint(); }
  std::size_t size() const noexcept { return strangers_.size(); }
  // How many had another token.
  int refused() const noexcept { return refused_; }

 private:
  struct Stranger {
    Greeting greeting;
    Deadline heard_at;  // when it connected, or last completed a message
    std::uint64_t from;
    bool is_counted_as_tls = false;
  };
  using Place = std::deque<Stranger>::iterator;

  // One of all, or of those that have begun TLS, gives way.
  void make_room(bool among_tls);
  void remove(Place place);

  std::unique_ptr<TcpListener> listener_;
  std::size_t places_;
  const EncryptionPolicy& policy_;
  std::deque<Stranger> strangers_;  // the oldest first
  std::size_t with_tls_ = 0;
  std::vector<pollfd> polls_;
  std::minstd_rand dice_;
  Deadline accept_at_{};
  int refused_ = 0;
};

// The incoming connections of a mesh until their handshakes are complete. Who has proved that it knows the
// token is a rank, and only the mesh's connect_timeout limits it.
class PendingConnections {
 public:
  // `policy` must outlive it.
  PendingConnections(std::unique_ptr<TcpListener> listener, int world_size, const EncryptionPolicy& policy);

  // Accepts connections, continues handshakes, and adds ranks of this mesh to `peer_table`; strangers are
  // silently disconnected. Errors: a rank with the right token does not belong to the mesh, or descriptors
  // have run out.
  Status advance(Deadline now, PeerTable& peer_table);

  void add_interests(Deadline now, std::vector<pollfd>& polls) const {
    strangers_.add_interests(now, polls);
    for (const Greeting& rank : ranks_) polls.push_back({rank.fd(), rank.awaits(), 0});
  }
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
