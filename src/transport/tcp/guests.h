// The incoming connections of a mesh: whoever knocks, until he has proved that he knows the token.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include <poll.h>

#include "transport/links/link.h"
#include "transport/tcp/descriptors.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/roster.h"

namespace deltawire {

class Guests {
 public:
  Guests(std::unique_ptr<TcpListener> listener, int world_size) noexcept;

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
    Deadline came_at;
  };

  Status accept_all(Deadline now, const Roster& roster);
  bool make_room(Deadline now);
  Status welcome(Guest& guest, Roster& roster) const;

  std::unique_ptr<TcpListener> listener_;
  std::size_t guests_max_;
  std::deque<Guest> guests_;  // the oldest first
  Deadline accept_at_{};
  DescriptorShortage shortage_;
  int strangers_ = 0;
};

}  // namespace deltawire
