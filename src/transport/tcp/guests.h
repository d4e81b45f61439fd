// The incoming connections of a mesh: whoever knocks, until he has shown the token.
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
  Guests(std::unique_ptr<TcpListener> listener, const Token& token) noexcept
      : listener_(std::move(listener)), token_(token) {}

  // Accepts, reads, and enters ranks of this mesh in `roster`; strangers are turned away in silence. An
  // error is a rank with the right token that doesn't fit.
  Status advance(Deadline now, Roster& roster);

  void add_interests(Deadline now, std::vector<pollfd>& polls) const;
  // When a silent guest is to be turned away, or accepting is to be tried again.
  Deadline wake_at() const noexcept;

  // How many came with another token.
  int strangers() const noexcept { return strangers_; }

 private:
  struct Guest {
    GuardedFd socket;
    HelloReader reader;
    Deadline drop_at;
  };

  void accept_all(Deadline now);
  Status welcome(Guest& guest, Roster& roster) const;

  std::unique_ptr<TcpListener> listener_;
  Token token_;
  std::deque<Guest> guests_;  // the oldest first
  Deadline accept_at_{};
  int strangers_ = 0;
};

}  // namespace deltawire
