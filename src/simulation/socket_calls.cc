// The system's calls of the code with which ranks meet: linked with --wrap (CMakeLists.txt), a call comes
// here first, and goes to the simulation's sockets if there are any.
#include <cerrno>

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "simulation/disks.h"
#include "simulation/sockets.h"

using deltawire::simulation::Disks;
using deltawire::simulation::Sockets;

namespace {

Sockets* owner_of(int fd) {
  return Sockets::owns(fd) ? Sockets::current() : nullptr;
}

int give(const sockaddr_in& from, sockaddr* to, socklen_t* length) {
  *reinterpret_cast<sockaddr_in*>(to) = from;
  *length = sizeof from;
  return 0;
}

}  // namespace

// The linker's names. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" {

int __real_socket(int domain, int type, int protocol);
int __real_bind(int fd, const sockaddr* address, socklen_t length);
int __real_listen(int fd, int backlog);
int __real_accept4(int fd, sockaddr* address, socklen_t* length, int flags);
int __real_connect(int fd, const sockaddr* address, socklen_t length);
int __real_getsockname(int fd, sockaddr* address, socklen_t* length);
int __real_getpeername(int fd, sockaddr* address, socklen_t* length);
int __real_getsockopt(int fd, int level, int name, void* value, socklen_t* length);
int __real_setsockopt(int fd, int level, int name, const void* value, socklen_t length);
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __real_recv(int fd, void* into, std::size_t bytes, int flags);
int __real_poll(pollfd* entries, nfds_t count, int timeout_ms);
int __real_epoll_create1(int flags);
int __real_epoll_ctl(int watcher, int operation, int fd, epoll_event* event);
int __real_epoll_wait(int watcher, epoll_event* events, int most, int timeout_ms);
int __real_close(int fd);
int __real_ioctl(int fd, unsigned long request, void* value);

int __wrap_socket(int domain, int type, int protocol) {
  Sockets* const sockets = Sockets::current();
  if (sockets != nullptr && domain == AF_UNIX) {  // simulated ranks are on machines of their own
    errno = EAFNOSUPPORT;
    return -1;
  }
  return sockets != nullptr && domain == AF_INET ? sockets->open() : __real_socket(domain, type, protocol);
}

int __wrap_bind(int fd, const sockaddr* address, socklen_t length) {
  Sockets* const sockets = owner_of(fd);
  return sockets != nullptr ? sockets->bind(fd, *reinterpret_cast<const sockaddr_in*>(address))
                            : __real_bind(fd, address, length);
}

int __wrap_listen(int fd, int backlog) {
  Sockets* const sockets = owner_of(fd);
  return sockets != nullptr ? sockets->listen(fd) : __real_listen(fd, backlog);
}

int __wrap_accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  Sockets* const sockets = owner_of(fd);
  return sockets != nullptr ? sockets->accept(fd) : __real_accept4(fd, address, length, flags);
}

int __wrap_connect(int fd, const sockaddr* address, socklen_t length) {
  Sockets* const sockets = owner_of(fd);
  return sockets != nullptr ? sockets->connect(fd, *reinterpret_cast<const sockaddr_in*>(address))
                            : __real_connect(fd, address, length);
}

int __wrap_getsockname(int fd, sockaddr* address, socklen_t* length) {
  Sockets* const sockets = owner_of(fd);
  if (sockets == nullptr) return __real_getsockname(fd, address, length);
  sockaddr_in found{};
  return sockets->name(fd, found) != 0 ? -1 : give(found, address, length);
}

int __wrap_getpeername(int fd, sockaddr* address, socklen_t* length) {
  Sockets* const sockets = owner_of(fd);
  if (sockets == nullptr) return __real_getpeername(fd, address, length);
  sockaddr_in found{};
  return sockets->peer_name(fd, found) != 0 ? -1 : give(found, address, length);
}

// SO_ERROR, SO_DOMAIN and TCP_INFO are asked for.
int __wrap_getsockopt(int fd, int level, int name, void* value, socklen_t* length) {
  Sockets* const sockets = owner_of(fd);
  if (sockets == nullptr) return __real_getsockopt(fd, level, name, value, length);
  if (level == IPPROTO_TCP) {
    if (name == TCP_INFO) static_cast<tcp_info*>(value)->tcpi_snd_mss = 1448;
    return 0;
  }
  *static_cast<int*>(value) = name == SO_ERROR ? sockets->error(fd) : AF_INET;
  return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
  return owner_of(fd) != nullptr ? 0 : __real_setsockopt(fd, level, name, value, length);
}

ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  Sockets* const sockets = owner_of(fd);
  return sockets != nullptr ? sockets->send(fd, {message->msg_iov, message->msg_iovlen})
                            : __real_sendmsg(fd, message, flags);
}

ssize_t __wrap_recv(int fd, void* into, std::size_t bytes, int flags) {
  Sockets* const sockets = owner_of(fd);
  return sockets != nullptr
             ? sockets->receive(fd, {static_cast<std::byte*>(into), bytes}, (flags & MSG_PEEK) != 0)
             : __real_recv(fd, into, bytes, flags);
}

int __wrap_poll(pollfd* entries, nfds_t count, int timeout_ms) {
  Sockets* const sockets = Sockets::current();
  return sockets != nullptr ? sockets->poll({entries, count}, timeout_ms)
                            : __real_poll(entries, count, timeout_ms);
}

int __wrap_epoll_create1(int flags) {
  Sockets* const sockets = Sockets::current();
  return sockets != nullptr ? sockets->open(true) : __real_epoll_create1(flags);
}

int __wrap_epoll_ctl(int watcher, int operation, int fd, epoll_event* event) {
  Sockets* const sockets = owner_of(watcher);
  if (sockets == nullptr) return __real_epoll_ctl(watcher, operation, fd, event);
  return sockets->watch(watcher, fd, operation == EPOLL_CTL_ADD ? event : nullptr);
}

// None waits.
int __wrap_epoll_wait(int watcher, epoll_event* events, int most, int timeout_ms) {
  Sockets* const sockets = owner_of(watcher);
  return sockets != nullptr ? sockets->watched(watcher, {events, static_cast<std::size_t>(most)})
                            : __real_epoll_wait(watcher, events, most, timeout_ms);
}

int __wrap_close(int fd) {
  if (Disks* const disks = Disks::current(); Disks::owns(fd)) return disks != nullptr ? disks->close(fd) : 0;
  Sockets* const sockets = owner_of(fd);
  if (sockets == nullptr) return Sockets::owns(fd) ? 0 : __real_close(fd);
  sockets->close(fd);
  return 0;
}

int __wrap_ioctl(int fd, unsigned long request, void* value) {
  Sockets* const sockets = owner_of(fd);
  if (sockets == nullptr) return __real_ioctl(fd, request, value);
  *static_cast<int*>(value) =
      static_cast<int>(request == SIOCINQ ? sockets->unread(fd) : sockets->unacknowledged(fd));
  return 0;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
