// One connection until both ends have identified themselves: TLS, where it is used, and the handshake inside.
//
// The dialing end decides by its policy whether it begins with TLS. The listening end sees that from the
// first byte. It accepts both, but a rank that comes in the clear although the policy demands TLS learns no
// more than that, and doesn't become part of the mesh.
#pragma once

#include <memory>
#include <optional>

#include "transport/tcp/handshake.h"
#include "transport/tls/tls_context.h"

namespace deltawire {

class Greeting {
 public:
  // `own.role` says which end this is. `policy` must outlive it. REQUIRES: `socket` is connected and
  // non-blocking.
  Greeting(GuardedFd socket, const EncryptionPolicy& policy, const Token& token, const Claims& own,
           const Nonce& nonce);

  // Sends and receives as much as the socket allows now. kStranger: another token, or no TLS where it must
  // be. kClosed: the connection ended first.
  Exchange advance();
  int fd() const noexcept { return tls_ ? tls_->fd() : connection_ ? connection_.get() : socket_.get(); }
  // What to poll that for.
  short awaits() const noexcept;

  // Tells, as a listener, who has sent its claims that there is no place left, if the socket has room.
  void turn_away();

  // Whether the connection began with TLS.
  bool has_begun_tls() const noexcept { return has_begun_tls_; }
  // Whether the listener, which this end has dialed, has answered.
  bool is_answered() const noexcept {
    return has_begun_tls_ ? handshake_.has_value() : handshake_ && handshake_->has_proved();
  }
  // Whether a complete first message has arrived: more than silence or garbage.
  bool has_heard() const noexcept {
    return (tls_ && tls_->has_answered()) || (handshake_ && handshake_->has_heard());
  }
  // Those of the handshake.
  bool is_trusted() const noexcept { return handshake_ && handshake_->is_trusted(); }
  bool has_proved() const noexcept { return handshake_ && handshake_->has_proved(); }
  const Claims& peer() const noexcept { return handshake_->peer(); }

  // Whether the other end came in the clear, and must not.
  bool lacks_encryption() const noexcept { return lacks_encryption_; }
  // How TLS failed, if it did.
  TlsLink::End tls_end() const noexcept { return tls_ ? tls_->end() : TlsLink::End::kNone; }

  // REQUIRES: advance() returned kDone.
  Connection take_connection() noexcept { return std::move(connection_); }

 private:
  bool is_dialer() const noexcept { return own_.role == Claims::Role::kDialer; }
  void begin_tls();
  void begin_in_clear();

  const EncryptionPolicy* policy_;
  Token token_;
  Claims own_;
  Nonce nonce_;
  // The connection is the first of these until it is known whether TLS begins, the second until TLS has
  // begun.
  GuardedFd socket_;
  std::unique_ptr<TlsLink> tls_;
  Connection connection_;
  std::optional<Handshake> handshake_;
  bool has_begun_tls_ = false;
  bool lacks_encryption_ = false;
};

}  // namespace deltawire
