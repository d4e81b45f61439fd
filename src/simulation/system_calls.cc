// The system's calls of the code with which ranks meet, and of that which writes and reads snapshots: linked
// with --wrap (CMakeLists.txt), a call comes here first. It goes to the simulation's sockets if there are
// any, and to its disks if it is about a file of theirs.
#include <cerrno>
#include <cstdarg>

#include <dirent.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simulation/disks.h"
#include "simulation/sockets.h"

using deltawire::simulation::Disks;
using deltawire::simulation::Sockets;

namespace {

Sockets* sockets_of(int fd) {
  return Sockets::owns(fd) ? Sockets::current() : nullptr;
}

Disks* disks_of(int fd) {
  return Disks::owns(fd) ? Disks::current() : nullptr;
}

Disks* disks_of(const char* path) {
  return Disks::current() != nullptr && Disks::owns(path) ? Disks::current() : nullptr;
}

}  // namespace

// The linker's names. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,cert-dcl50-cpp)
// NOLINTBEGIN(bugprone-macro-parentheses): lists of parameters and of arguments.

// A call that is `simulated` by the sockets or disks of `given`, `own` in it, and the system's where that is
// null.
#define SIMULATED_CALL(type, name, parameters, arguments, given, simulated) \
  type __real_##name parameters;                                            \
  type __wrap_##name parameters {                                           \
    auto* const own = given;                                                \
    return own != nullptr ? simulated : __real_##name arguments;            \
  }

extern "C" {

SIMULATED_CALL(int, bind, (int fd, const sockaddr* address, socklen_t length), (fd, address, length),
               sockets_of(fd), own->bind(fd, *reinterpret_cast<const sockaddr_in*>(address)))
SIMULATED_CALL(int, listen, (int fd, int backlog), (fd, backlog), sockets_of(fd), own->listen(fd))
SIMULATED_CALL(int, accept4, (int fd, sockaddr* address, socklen_t* length, int flags),
               (fd, address, length, flags), sockets_of(fd), own->accept(fd))
SIMULATED_CALL(int, connect, (int fd, const sockaddr* address, socklen_t length), (fd, address, length),
               sockets_of(fd), own->connect(fd, *reinterpret_cast<const sockaddr_in*>(address)))
SIMULATED_CALL(int, getsockname, (int fd, sockaddr* address, socklen_t* length), (fd, address, length),
               sockets_of(fd), own->name(fd, address, length))
SIMULATED_CALL(int, getpeername, (int fd, sockaddr* address, socklen_t* length), (fd, address, length),
               sockets_of(fd), own->peer_name(fd, address, length))
SIMULATED_CALL(int, setsockopt, (int fd, int level, int name, const void* value, socklen_t length),
               (fd, level, name, value, length), sockets_of(fd), 0)
SIMULATED_CALL(ssize_t, sendmsg, (int fd, const msghdr* message, int flags), (fd, message, flags),
               sockets_of(fd), own->send(fd, {message->msg_iov, message->msg_iovlen}))
SIMULATED_CALL(ssize_t, recv, (int fd, void* into, std::size_t bytes, int flags), (fd, into, bytes, flags),
               sockets_of(fd),
               own->receive(fd, {static_cast<std::byte*>(into), bytes}, (flags & MSG_PEEK) != 0))
SIMULATED_CALL(int, poll, (pollfd * entries, nfds_t count, int timeout_ms), (entries, count, timeout_ms),
               Sockets::current(), own->poll({entries, count}, timeout_ms))
SIMULATED_CALL(int, epoll_create1, (int flags), (flags), Sockets::current(), own->open(true))
SIMULATED_CALL(int, epoll_ctl, (int watcher, int operation, int fd, epoll_event* event),
               (watcher, operation, fd, event), sockets_of(watcher),
               own->watch(watcher, fd, operation == EPOLL_CTL_ADD ? event : nullptr))
// None waits.
SIMULATED_CALL(int, epoll_wait, (int watcher, epoll_event* events, int most, int timeout_ms),
               (watcher, events, most, timeout_ms), sockets_of(watcher),
               own->watched(watcher, {events, static_cast<std::size_t>(most)}))

SIMULATED_CALL(int, mkostemp, (char* pattern, int flags), (pattern, flags), disks_of(pattern),
               own->create(pattern))
SIMULATED_CALL(int, dup, (int fd), (fd), disks_of(fd), own->duplicate(fd))
SIMULATED_CALL(ssize_t, write, (int fd, const void* from, std::size_t bytes), (fd, from, bytes), disks_of(fd),
               own->write(fd, {static_cast<const std::byte*>(from), bytes}))
SIMULATED_CALL(ssize_t, pread, (int fd, void* into, std::size_t bytes, off_t offset),
               (fd, into, bytes, offset), disks_of(fd),
               own->read(fd, {static_cast<std::byte*>(into), bytes}, static_cast<std::uint64_t>(offset)))
SIMULATED_CALL(int, fchmod, (int fd, mode_t mode), (fd, mode), disks_of(fd), 0)
SIMULATED_CALL(int, fsync, (int fd), (fd), disks_of(fd), own->flush(fd))
SIMULATED_CALL(int, rename, (const char* from, const char* to), (from, to), disks_of(from),
               own->rename(from, to))
SIMULATED_CALL(int, unlink, (const char* path), (path), disks_of(path), own->unlink(path))
SIMULATED_CALL(DIR*, opendir, (const char* path), (path), disks_of(path), own->open_folder(path))

// Who runs on simulated disks lists no other folder.
SIMULATED_CALL(dirent*, readdir, (DIR * folder), (folder), Disks::current(), own->next_name(folder))
SIMULATED_CALL(int, closedir, (DIR * folder), (folder), Disks::current(), own->close_folder(folder))

int __real_socket(int domain, int type, int protocol);
int __real_getsockopt(int fd, int level, int name, void* value, socklen_t* length);
int __real_ioctl(int fd, unsigned long request, void* value);
int __real_open(const char* path, int flags, ...);
int __real_fstat(int fd, struct stat* found);
int __real_close(int fd);

int __wrap_socket(int domain, int type, int protocol) {
  Sockets* const sockets = Sockets::current();
  if (sockets != nullptr && domain == AF_UNIX) {  // simulated ranks are on machines of their own
    errno = EAFNOSUPPORT;
    return -1;
  }
  return sockets != nullptr && domain == AF_INET ? sockets->open() : __real_socket(domain, type, protocol);
}

// SO_ERROR, SO_DOMAIN and TCP_INFO are asked for.
int __wrap_getsockopt(int fd, int level, int name, void* value, socklen_t* length) {
  Sockets* const sockets = sockets_of(fd);
  if (sockets == nullptr) return __real_getsockopt(fd, level, name, value, length);
  if (level == IPPROTO_TCP) {
    if (name == TCP_INFO) static_cast<tcp_info*>(value)->tcpi_snd_mss = 1448;
    return 0;
  }
  *static_cast<int*>(value) = name == SO_ERROR ? sockets->error(fd) : AF_INET;
  return 0;
}

int __wrap_ioctl(int fd, unsigned long request, void* value) {
  Sockets* const sockets = sockets_of(fd);
  if (sockets == nullptr) return __real_ioctl(fd, request, value);
  *static_cast<int*>(value) =
      static_cast<int>(request == SIOCINQ ? sockets->unread(fd) : sockets->unacknowledged(fd));
  return 0;
}

int __wrap_open(const char* path, int flags, ...) {
  if (Disks* const disks = disks_of(path)) return disks->open(path, flags);
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return __real_open(path, flags, mode);
}

// Its size is asked for.
int __wrap_fstat(int fd, struct stat* found) {
  Disks* const disks = disks_of(fd);
  if (disks == nullptr) return __real_fstat(fd, found);
  *found = {};
  found->st_size = disks->size(fd);
  return 0;
}

// What is closed after its simulation has ended is gone already.
int __wrap_close(int fd) {
  if (Disks* const disks = Disks::current(); Disks::owns(fd)) return disks != nullptr ? disks->close(fd) : 0;
  Sockets* const sockets = sockets_of(fd);
  if (sockets == nullptr) return Sockets::owns(fd) ? 0 : __real_close(fd);
  sockets->close(fd);
  return 0;
}

}  // extern "C"
// NOLINTEND(bugprone-macro-parentheses)
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,cert-dcl50-cpp)
