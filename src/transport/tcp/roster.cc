#include "transport/tcp/roster.h"

#include <algorithm>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace deltawire {
namespace {

constexpr int kKeepIdleSeconds = 15;
constexpr int kKeepIntervalSeconds = 5;
constexpr int kKeepProbes = 3;
constexpr unsigned kUnacknowledgedMs = 30000;

void set_option(int fd, int level, int name, int value) noexcept {
  (void)::setsockopt(fd, level, name, &value, sizeof value);
}

GuardedFd& socket_of(PeerSockets& sockets, Hello::Stream stream) noexcept {
  return stream == Hello::Stream::kData ? sockets.data : sockets.control;
}

bool has_ended(int fd) noexcept {
  char peeked = 0;
  return ::recv(fd, &peeked, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

}  // namespace

void configure_connection(int fd, Hello::Stream stream) noexcept {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
  // Not on data streams: there a peer may rightly leave its window closed for as long as it computes, and
  // the kernel counts that as unacknowledged too. Control streams are always read.
  if (stream == Hello::Stream::kControl) {
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMs, sizeof kUnacknowledgedMs);
  }
}

Roster::Roster(const MeshOptions& options)
    : token_(options.token), sockets_(static_cast<std::size_t>(options.world_size)) {
  own_.rank = static_cast<std::uint32_t>(options.rank);
  own_.world_size = static_cast<std::uint32_t>(options.world_size);
  own_.settings = options.settings;
  for (int rank = 0; rank < options.world_size; ++rank) {
    if (rank != options.rank) missing_.push_back(rank);
  }
}

std::vector<std::byte> Roster::own_hello(Hello::Stream stream) const {
  Hello hello = own_;
  hello.stream = stream;
  return encode_hello(token_, hello);
}

Status Roster::check(const Hello& hello) const {
  const std::string other = "rank " + std::to_string(hello.rank);
  const std::string self = "rank " + std::to_string(own_.rank);
  const int suspect = hello.rank < own_.world_size ? static_cast<int>(hello.rank) : kNoSuspect;
  if (hello.version != own_.version) {
    return fail(ErrorCode::kMismatch,
                other + " speaks handshake version " + std::to_string(hello.version) + ", " + self +
                    " version " + std::to_string(own_.version) + "; install the same deltawire everywhere",
                suspect);
  }
  if (hello.world_size != own_.world_size) {
    return fail(ErrorCode::kMismatch,
                other + " was started for a world of " + std::to_string(hello.world_size) + " ranks, " +
                    self + " for " + std::to_string(own_.world_size) +
                    "; start all ranks with the same world size",
                suspect);
  }
  if (hello.rank == own_.rank || hello.rank >= own_.world_size) {
    return fail(ErrorCode::kMismatch,
                "another process calls itself " + other + " in the world of " +
                    std::to_string(own_.world_size) + " that " + self + " connects; give each its own rank",
                suspect);
  }
  if (hello.settings != own_.settings) {
    return tl::unexpected<Error>(
        settings_mismatch(suspect, hello.settings, static_cast<int>(own_.rank), own_.settings));
  }
  return {};
}

Status Roster::add(const Hello& hello, GuardedFd socket) {
  const int rank = static_cast<int>(hello.rank);
  PeerSockets& sockets = sockets_[hello.rank];
  GuardedFd& place = socket_of(sockets, hello.stream);
  if (place && !has_ended(place.get())) {
    return fail(ErrorCode::kMismatch,
                "two processes call themselves rank " + std::to_string(rank) + "; give each its own rank",
                rank);
  }
  place = std::move(socket);
  if (sockets.data && sockets.control) std::erase(missing_, rank);
  return {};
}

bool Roster::has(int rank, Hello::Stream stream) const noexcept {
  const PeerSockets& sockets = sockets_[static_cast<std::size_t>(rank)];
  return static_cast<bool>(stream == Hello::Stream::kData ? sockets.data : sockets.control);
}

}  // namespace deltawire
