// The incoming connections of a mesh: whoever knocks, until he has proved that he knows the token.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include <poll.h>

#include "transport/link.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/roster.h"

namespace deltawire {

class Guests {
 public:
  explicit Guests(std::unique_ptr<TcpListener> listener) noexcept : listener_(std::move(listener)) {}

  // Accepts, reads, and enters ranks of this mesh in `roster`; strangers are turned away in silence. An
  // error is a rank with the right token that doesn't fit, or descriptors that have run out.
  Status advance(Deadline now, Roster& roster);

  void add_interests(Deadline now, std::vector<pollfd>& polls) const;
  // When a silent guest is to be turned away, or accepting is to be tried again.
  Deadline wake_at() const noexcept;

  // Hangs up on all that are not through: they will knock again.
  void send_away() noexcept { guests_.clear(); }

  // How many came with another token.
  int strangers() const noexcept { return strangers_; }

 private:
  struct Guest {
    GuardedFd socket;
    Handshake handshake;
    Deadline drop_at;
  };

  Status accept_all(Deadline now, const Roster& roster);
  Status bear_shortage(Deadline now, const Roster& roster, int error);
  void make_room();
  Status welcome(Guest& guest, Roster& roster) const;

  std::unique_ptr<TcpListener> listener_;
  std::deque<Guest> guests_;  // the oldest first
  Deadline accept_at_{};
  Deadline shortage_until_ = kNever;
  int strangers_ = 0;
};

}  // namespace deltawire
