#include "transport/tcp/local_socket.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/errors.h"

namespace deltawire {
namespace {

struct LocalName {
  explicit LocalName(const SocketAddress& of) {
    address.sun_family = AF_UNIX;
    // A name that begins with a zero byte is abstract. Hosts are numeric, and short enough.
    const std::string name = std::string(1, '\0') + "deltawire/" + to_string(of.endpoint());
    const std::size_t length = std::min(name.size(), sizeof address.sun_path);
    std::copy_n(name.begin(), length, address.sun_path);
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  }
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t bytes = 0;
};

GuardedFd open_local() {
  return GuardedFd::open([] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

bool is_of_this_user(int fd) noexcept {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

}  // namespace

Result<GuardedFd> listen_locally(const SocketAddress& address, int backlog) {
  ASSIGN_OR_RETURN(const bool is_on, is_switched_on("DELTAWIRE_LOCAL_SOCKETS"));
  if (!is_on || address.is_unspecified()) return GuardedFd();
  GuardedFd socket = open_local();
  const LocalName name(address);
  if (!socket || ::bind(socket.get(), name.get(), name.bytes) != 0 || ::listen(socket.get(), backlog) != 0) {
    return GuardedFd();
  }
  return socket;
}

GuardedFd dial_locally(const SocketAddress& address) {
  GuardedFd socket = open_local();
  const LocalName name(address);
  // It connects at once or not at all: with a full queue of the listener, for instance.
  if (!socket || ::connect(socket.get(), name.get(), name.bytes) != 0 || !is_of_this_user(socket.get())) {
    return {};
  }
  return socket;
}

}  // namespace deltawire
