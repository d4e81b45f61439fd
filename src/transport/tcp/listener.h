// The listening sockets behind listen_tcp: one of TCP, and one for ranks on this machine.
#pragma once

#include <vector>

#include <poll.h>

#include "deltawire/connect.h"
#include "transport/process/fork_guard.h"

namespace deltawire {

class TcpListener final : public Listener {
 public:
  // `local` may be empty (listen_locally).
  TcpListener(GuardedFd socket, GuardedFd local, Endpoint endpoint) noexcept
      : socket_(std::move(socket)), local_(std::move(local)), endpoint_(std::move(endpoint)) {}

  Endpoint endpoint() const override { return endpoint_; }
  // The next connection, from this machine or by TCP; empty with errno set, as after accept4.
  GuardedFd accept() const;
  void add_interests(std::vector<pollfd>& polls) const {
    polls.push_back({socket_.get(), POLLIN, 0});
    if (local_) polls.push_back({local_.get(), POLLIN, 0});
  }

 private:
  GuardedFd socket_;
  GuardedFd local_;
  Endpoint endpoint_;
};

}  // namespace deltawire
