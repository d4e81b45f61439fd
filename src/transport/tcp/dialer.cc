#include "transport/tcp/dialer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>

#include "transport/tcp/local_socket.h"
#include "transport/tcp/peer_table.h"

namespace deltawire {
namespace {

constexpr std::chrono::milliseconds kPauseMax{500};
// On the connection that it had, and on one more before it is gone.
constexpr int kHangUpsOfWhoGivesUp = 2;

using Connected = Dialer::Connected;

Connected connection_state(int fd) noexcept {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return Connected::kFailed;
  if (error != 0) return error == ECONNREFUSED ? Connected::kRefused : Connected::kFailed;
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

bool Dialer::advance(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy) {
  if (phase_ == Phase::kPause && now >= retry_at_) dial(now);
  if (phase_ == Phase::kConnecting) greet(now, token, own, policy);
  if (phase_ != Phase::kTalking) return false;
  switch (greeting_->advance()) {
    case Exchange::kDone: return true;
    case Exchange::kMore: return false;
    case Exchange::kStranger:
    case Exchange::kBroken: met_stranger_ = true; break;
    case Exchange::kClosed: hang_ups_ += greeting_->has_proved() ? 1 : 0; break;
  }
  tls_end_ = greeting_->tls_end();
  pause(now);
  return false;
}

void Dialer::dial(Deadline now) {
  socket_ = dial_locally(address_);
  if (socket_) {
    socket_error_ = 0;
    phase_ = Phase::kConnecting;
    return;
  }
  socket_ = GuardedFd::open(
      [this] { return ::socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  socket_error_ = socket_ ? 0 : errno;
  if (!socket_) {
    pause(now);
    return;
  }
  configure_connection(socket_.get(), stream_);
  if (::connect(socket_.get(), address_.get(), address_.length()) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    end_dialing(errno == ECONNREFUSED ? Connected::kRefused : Connected::kFailed);
    pause(now);
    return;
  }
  phase_ = Phase::kConnecting;
}

void Dialer::greet(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy) {
  const Connected connected = connection_state(socket_.get());
  if (connected == Connected::kNotYet) return;
  end_dialing(connected);
  if (connected != Connected::kYes) {
    pause(now);
    return;
  }
  const auto nonce = random_nonce();
  if (!nonce) {
    pause(now);
    return;
  }
  Claims claims = own;
  claims.stream = stream_;
  claims.peer = static_cast<std::uint32_t>(rank_);
  greeting_.emplace(std::move(socket_), policy, token, claims, *nonce);
  phase_ = Phase::kTalking;
}

void Dialer::end_dialing(Connected connected) noexcept {
  connected_ = connected;
  was_there_ = was_there_ || connected == Connected::kYes;
}

// A rank that dies during a handshake hangs up, too, but only once, and nothing listens there afterwards; one
// that gives up does it twice at most. Who has another token goes on turning this rank away.
bool Dialer::was_turned_away() const noexcept {
  return met_stranger_ || hang_ups_ > kHangUpsOfWhoGivesUp;
}

bool Dialer::was_left() const noexcept {
  return was_there_ && connected_ != Connected::kYes && !was_turned_away();
}

std::string Dialer::tls_problem(const std::string& self, Encryption setting) const {
  if (tls_end_ == TlsLink::End::kNotTls) {
    return " does not answer in TLS, which " + encryption_text(setting) + " of " + self +
           " demands: another version of deltawire, or somebody on the way who strips the encryption?";
  }
  if (tls_end_ == TlsLink::End::kAltered) {
    return " and " + self +
           " got bytes in TLS that were changed on the way; check the network between them";
  }
  return {};
}

std::string Dialer::silence() const {
  if (tls_end_ == TlsLink::End::kCut) {
    return " ends the connection in TLS's handshake: another version of deltawire, or somebody on the way "
           "who cuts what is encrypted?";
  }
  return phase_ == Phase::kTalking ? " takes the connection and says nothing." : "";
}

void Dialer::pause(Deadline now) noexcept {
  socket_.reset();
  greeting_.reset();
  phase_ = Phase::kPause;
  retry_at_ = now + pause_;
  pause_ = std::min(2 * pause_, kPauseMax);
}

pollfd Dialer::interest() const noexcept {
  switch (phase_) {
    case Phase::kPause: break;
    case Phase::kConnecting: return {socket_.get(), POLLOUT, 0};
    case Phase::kTalking: return {greeting_->fd(), greeting_->awaits(), 0};
  }
  return {-1, 0, 0};
}

}  // namespace deltawire
