#include "transport/tcp/greeting.h"

#include <cerrno>

#include <poll.h>
#include <sys/socket.h>

namespace deltawire {

Greeting::Greeting(GuardedFd socket, const EncryptionPolicy& policy, const Token& token, const Claims& own,
                   const Nonce& nonce)
    : policy_(&policy), token_(token), own_(own), nonce_(nonce), socket_(std::move(socket)) {
  if (!is_dialer()) return;
  policy.demands_tls(socket_.get()) ? begin_tls() : begin_in_clear();
}

void Greeting::begin_tls() {
  has_begun_tls_ = true;
  tls_ =
      std::make_unique<TlsLink>(policy_->tls, is_dialer() ? TlsLink::Role::kClient : TlsLink::Role::kServer,
                                std::make_unique<SocketLink>(std::move(socket_)));
}

void Greeting::begin_in_clear() {
  if (!is_dialer() && policy_->demands_tls(socket_.get())) {
    lacks_encryption_ = true;
    own_.problem = static_cast<std::uint8_t>(ErrorCode::kMismatch);
    const std::string self = own_.rank == Claims::kNobody ? "it" : "rank " + std::to_string(own_.rank);
    own_.names_reporter = true;
    own_.text = refusal_of_clear_text(self, policy_->setting, socket_.get());
  }
  connection_ = Connection(std::move(socket_));
  handshake_.emplace(token_, own_, nonce_);
}

Exchange Greeting::advance() {
  if (socket_) {
    std::byte first{};
    const ssize_t got = ::recv(socket_.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Exchange::kMore;
    if (got <= 0) return Exchange::kClosed;
    first == TlsContext::kFirstByte ? begin_tls() : begin_in_clear();
  }
  if (tls_) {
    switch (tls_->shake_hands()) {
      case TlsLink::Progress::kMore: return Exchange::kMore;
      case TlsLink::Progress::kFailed:
        return tls_->end() == TlsLink::End::kCut ? Exchange::kClosed : Exchange::kStranger;
      case TlsLink::Progress::kDone: break;
    }
    connection_ = Connection(std::move(tls_));
    handshake_.emplace(token_, own_, nonce_);
  }
  return advance_handshake(*handshake_, connection_);
}

void Greeting::turn_away() {
  if (!handshake_ || !connection_) return;
  handshake_->turn_away();
  if (const Bytes last = handshake_->unsent(); !last.empty()) (void)connection_.send(last);
}

short Greeting::awaits() const noexcept {
  const bool has_unsent = tls_ ? tls_->wants_room() : handshake_ && !handshake_->unsent().empty();
  return has_unsent ? POLLOUT : POLLIN;
}

}  // namespace deltawire
