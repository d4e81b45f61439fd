// A connected socket, in the clear or through TLS, while ranks connect; afterwards it is a link of the mesh.
#pragma once

#include <memory>

#include <sys/socket.h>

#include "transport/links/link.h"
#include "transport/links/shared_link.h"
#include "transport/process/fork_guard.h"
#include "transport/tls/tls_link.h"

namespace deltawire {

// A connected stream socket as a link; it is at the bottom of every stack of decorators.
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

// Thread rule: one thread. As with a descriptor, sending and receiving leave the object itself unchanged.
class Connection {
 public:
  Connection() noexcept = default;
  // In the clear. REQUIRES: `socket` is connected and non-blocking, or empty.
  Connection(GuardedFd socket)  // NOLINT(google-explicit-constructor)
      : link_(socket ? std::make_unique<SocketLink>(std::move(socket)) : nullptr) {}
  // REQUIRES: its handshake is done.
  explicit Connection(std::unique_ptr<TlsLink> tls) noexcept : tls_(tls.get()), link_(std::move(tls)) {}

  explicit operator bool() const noexcept { return link_ != nullptr; }
  int get() const noexcept { return link_ ? link_->fd() : -1; }
  void reset() noexcept {
    tls_ = nullptr;
    link_.reset();
  }

  IoResult send(Bytes bytes) const noexcept { return link_->send_bytes(bytes); }
  IoResult recv(MutBytes into) const noexcept { return link_->recv(into); }
  // Receives without taking anything away.
  IoResult peek(MutBytes into) const {
    if (tls_ != nullptr) return tls_->peek(into);
    const ssize_t got = ::recv(get(), into.data(), into.size(), MSG_PEEK | MSG_DONTWAIT);
    return got > 0 ? IoResult::moved(static_cast<std::size_t>(got)) : IoResult::would_block();
  }

  bool is_encrypted() const noexcept { return tls_ != nullptr; }
  LineState state() const noexcept { return link_ ? link_->state() : LineState{}; }

  // Whether both ends are processes of this machine that talk in the clear.
  bool may_share_memory() const noexcept {
    int domain = 0;
    socklen_t length = sizeof domain;
    return link_ && tls_ == nullptr && ::getsockopt(get(), SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
           domain == AF_UNIX;
  }
  // From now on the bytes go through `memory`. REQUIRES: may_share_memory().
  void share(SharedMemory memory, SharedMemory::Side self) {
    link_ = std::make_unique<SharedLink>(std::move(link_), std::move(memory), self);
  }

  std::unique_ptr<Link> take_link() noexcept {
    tls_ = nullptr;
    return std::move(link_);
  }

 private:
  TlsLink* tls_ = nullptr;  // `link_`, if it is one
  std::unique_ptr<Link> link_;
};

}  // namespace deltawire
