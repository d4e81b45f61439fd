#include "transport/links/connection.h"

#include <array>
#include <cerrno>

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

namespace deltawire {
namespace {

IoResult from_errno(int error) noexcept {
  if (error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS) return IoResult::would_block();
  if (error == ECONNRESET || error == EPIPE) return IoResult::closed();
  return {IoResult::Kind::kError, 0, error, kNever};
}

}  // namespace

IoResult SocketLink::send(std::span<const iovec> pieces) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());  // sendmsg only reads them
  message.msg_iovlen = pieces.size();
  while (true) {
    const ssize_t sent = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return IoResult::moved(static_cast<std::size_t>(sent));
    if (errno != EINTR) return from_errno(errno);
  }
}

IoResult SocketLink::recv(MutBytes into) noexcept {
  while (true) {
    const ssize_t got = ::recv(fd(), into.data(), into.size(), MSG_DONTWAIT);
    if (got > 0) return IoResult::moved(static_cast<std::size_t>(got));
    if (got == 0) return IoResult::closed();
    if (errno != EINTR) return from_errno(errno);
  }
}

// Closing a socket with unread bytes in it resets the connection, and a reset throws away what is still
// on its way to the peer. Without unread bytes the kernel delivers the rest after the close.
bool SocketLink::delivered() noexcept {
  int unread = 0;
  return ::ioctl(fd(), SIOCINQ, &unread) != 0 || unread == 0 || unacknowledged() == 0;
}

// For sockets within a machine the kernel counts what the peer has not read, which says nothing about the
// network.
std::size_t SocketLink::unacknowledged() noexcept {
  int domain = 0;
  socklen_t length = sizeof domain;
  if (::getsockopt(fd(), SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain == AF_UNIX) return 0;
  int bytes = 0;
  return ::ioctl(fd(), SIOCOUTQ, &bytes) != 0 ? 0 : static_cast<std::size_t>(bytes);
}

LineState SocketLink::state_of(int socket) noexcept {
  LineState state;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return state;
  if (info.tcpi_min_rtt != ~std::uint32_t{0}) state.round_trip = std::chrono::microseconds(info.tcpi_min_rtt);
  state.bytes_sent = info.tcpi_bytes_sent;
  state.bytes_resent = info.tcpi_bytes_retrans;
  state.segment_bytes = info.tcpi_snd_mss;
  std::array<char, 16> control{};  // the kernel's names fit, and need no memory of their own
  length = control.size() - 1;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, control.data(), &length) == 0) {
    state.congestion_control = control.data();
  }
  return state;
}

}  // namespace deltawire
