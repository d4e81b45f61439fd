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

#include "transport/tcp/greeting.h"
#include "transport/tcp/listener.h"

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

  void add_interests(Deadline now, std::vector<pollfd>& polls) const;
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

}  // namespace deltawire
