#include "transport/tcp/dialer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>

#include "transport/tcp/roster.h"

namespace deltawire {
namespace {

constexpr std::chrono::milliseconds kPauseMax{500};

enum class Connected : std::uint8_t { kNotYet, kYes, kFailed };

Connected connection_state(int fd) noexcept {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) return Connected::kFailed;
  sockaddr_storage peer{};
  socklen_t peer_length = sizeof peer;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0) {
    return errno == ENOTCONN ? Connected::kNotYet : Connected::kFailed;
  }
  // A dialed port that nobody listens on can be the very one that the kernel picked for the dialing
  // socket, and TCP then connects the socket with itself.
  sockaddr_storage self{};
  socklen_t self_length = sizeof self;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&self), &self_length) != 0) return Connected::kFailed;
  const bool itself = self_length == peer_length && std::memcmp(&self, &peer, self_length) == 0;
  return itself ? Connected::kFailed : Connected::kYes;
}

}  // namespace

bool Dialer::advance(Deadline now, const Token& token, const std::vector<std::byte>& own_hello) {
  if (phase_ == Phase::kPause && now >= retry_at_) {
    reader_ = HelloReader(token);
    dial(now);
  }
  if (phase_ == Phase::kConnecting) greet(now, own_hello);
  if (phase_ != Phase::kReading) return false;
  switch (reader_.read(socket_.get())) {
    case HelloReader::State::kDone: return true;
    case HelloReader::State::kMore: return false;
    case HelloReader::State::kStranger:
    case HelloReader::State::kClosed:
    case HelloReader::State::kBroken: break;
  }
  turned_away_ = true;
  pause(now);
  return false;
}

void Dialer::dial(Deadline now) {
  socket_ = GuardedFd::open(
      [this] { return ::socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!socket_) {
    pause(now);
    return;
  }
  configure_connection(socket_.get(), stream_);
  if (::connect(socket_.get(), address_.get(), address_.length()) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    pause(now);
    return;
  }
  phase_ = Phase::kConnecting;
}

void Dialer::greet(Deadline now, const std::vector<std::byte>& own_hello) {
  switch (connection_state(socket_.get())) {
    case Connected::kNotYet: return;
    case Connected::kFailed: pause(now); return;
    case Connected::kYes: break;
  }
  // A new connection's buffer takes a hello as a whole.
  const ssize_t sent = ::send(socket_.get(), own_hello.data(), own_hello.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(own_hello.size())) {
    pause(now);
    return;
  }
  phase_ = Phase::kReading;
}

void Dialer::pause(Deadline now) noexcept {
  socket_.reset();
  phase_ = Phase::kPause;
  retry_at_ = now + pause_;
  pause_ = std::min(2 * pause_, kPauseMax);
}

pollfd Dialer::interest() const noexcept {
  switch (phase_) {
    case Phase::kPause: break;
    case Phase::kConnecting: return {socket_.get(), POLLOUT, 0};
    case Phase::kReading: return {socket_.get(), POLLIN, 0};
  }
  return {-1, 0, 0};
}

}  // namespace deltawire
