// A connected stream socket as a link; it is at the bottom of every stack of decorators.
#pragma once

#include "transport/links/link.h"
#include "transport/process/fork_guard.h"

namespace deltawire {

class SocketLink final : public Link {
 public:
  // REQUIRES: `socket` is connected and non-blocking.
  explicit SocketLink(GuardedFd socket) noexcept : socket_(std::move(socket)) {}

  int fd() const noexcept override { return socket_.get(); }
  IoResult send(std::span<const iovec> pieces) noexcept override;
  IoResult recv(MutBytes into) noexcept override;
  bool stands_alone() const noexcept override { return true; }
  bool delivered() noexcept override;
  std::size_t unacknowledged() noexcept override;
  LineState state() const noexcept override { return state_of(fd()); }
  static LineState state_of(int socket) noexcept;

 private:
  GuardedFd socket_;
};

}  // namespace deltawire
