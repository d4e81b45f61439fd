// The listening socket behind listen_tcp.
#pragma once

#include "deltawire/connect.h"
#include "transport/process/fork_guard.h"

namespace deltawire {

class TcpListener final : public Listener {
 public:
  TcpListener(GuardedFd socket, Endpoint endpoint) noexcept
      : socket_(std::move(socket)), endpoint_(std::move(endpoint)) {}

  Endpoint endpoint() const override { return endpoint_; }
  int fd() const noexcept { return socket_.get(); }

 private:
  GuardedFd socket_;
  Endpoint endpoint_;
};

}  // namespace deltawire
