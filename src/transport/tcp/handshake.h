// How two ranks identify themselves to each other on a TCP connection, inside TLS where that is used
// (Greeting). Both prove that they know the token, which itself is never sent; little-endian:
//
//   dialer to listener   claims, nonce                  92 bytes
//   listener to dialer   nonce                          32 bytes
//   dialer to listener   proof                          32 bytes
//   listener to dialer   claims, proof, text            92 bytes and its text
//   dialer to listener   text
//
// The claims:
//    0  u32  magic
//    4  u16  version
//    6  u8   stream: 1 data, 2 control, from 3 on one more data stream
//    7  u8   role of the sender: 1 dialer, 2 listener
//    8  u32  rank of the sender; at doors 0xFFFF
//   12  u32  the rank that it expects at the other end
//   16  u32  its membership epoch
//   20  u16  bytes of its text, <= 1024
//   22  u8   0: the text is its settings. Otherwise an error code: the text says why it can't take part; with
//            128 added the text names who reports it
//   23  u8   its setting of encryption: 0 auto, 1 required, 2 off
//   24  u16  its world size
//   26  u16  the rank to blame for the problem; 0xFFFF: nobody
//   28  u64  its life: a random number, drawn when it began to connect
//   36       the first 24 bytes of the SHA-256 of its text
//
// A proof is the HMAC-SHA256, keyed with the token, of the prover's role as a label of 16 bytes, the dialer's
// nonce, the listener's nonce, the dialer's claims and, in the listener's proof, the listener's claims. So a
// proof is good for one connection only (the nonces), for one direction (the label) and for one pair of ranks
// and one stream (the claims); a text is covered through its digest. The life distinguishes a rank that
// connects again from a second process with the same rank. A later version may change everything after the
// first 16 bytes of the claims, except what a proof covers and the lengths above.
//
// A listener that has no place left for somebody who has sent its claims sends in the place of its answer
// "DWBS" and zeros, 92 bytes, so that who has the right token does not take that for a refusal.
//
// Until the proof is verified, only the magic is read, and at most 124 bytes are kept.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/connect.h"
#include "deltawire/tensor.h"
#include "transport/links/connection.h"
#include "transport/mesh/settings.h"
#include "transport/tcp/proof.h"
#include "transport/tls/tls_context.h"

namespace deltawire {

inline constexpr std::size_t kClaimsBytes = 60;
using ClaimsBytes = std::array<std::byte, kClaimsBytes>;

struct Claims {
  enum class Stream : std::uint8_t { kData = 1, kControl = 2, kMore = 3 };  // kMore + n: one more for data
  static constexpr int kMoreStreamsMax = 7;
  enum class Role : std::uint8_t { kDialer = 1, kListener = 2 };
  static constexpr std::uint16_t kVersion = 9;
  static constexpr std::uint16_t kNobody = 0xFFFF;

  // REQUIRES: 0 <= number < kMoreStreamsMax.
  static constexpr Stream more_stream(int number) noexcept {
    return static_cast<Stream>(static_cast<int>(Stream::kMore) + number);
  }
  // The number of one more data stream; below 0: it is none.
  static constexpr int number_of(Stream stream) noexcept {
    return static_cast<int>(stream) - static_cast<int>(Stream::kMore);
  }

  std::uint16_t version = kVersion;
  Stream stream = Stream::kData;
  Role role = Role::kDialer;
  std::uint32_t rank = 0;
  std::uint32_t peer = 0;
  std::uint32_t epoch = 0;
  std::uint16_t world_size = 0;
  std::uint8_t problem = 0;  // an ErrorCode's number
  bool names_reporter = false;
  Encryption encryption = Encryption::kAuto;
  std::uint16_t suspect = kNobody;
  std::uint64_t life = 0;
  std::string text;  // settings, or the problem's message
};

// REQUIRES: a text of at most kSettingsMax bytes.
ClaimsBytes encode_claims(const Claims& claims);

// How an exchange stands.
enum class Exchange : std::uint8_t {
  kMore,      // not finished yet
  kDone,      // peer() is valid, and everything is sent
  kStranger,  // not deltawire, or another token
  kBroken,    // the right token, but malformed bytes after it
  kBusy,      // the listener had no place left
  kClosed,    // the connection ended first
};

// One end of the exchange above, from the first byte to the last; it never consumes a byte beyond. It knows
// nothing of sockets: bytes go in through room() and received(), and come out through unsent() and sent().
class Handshake {
 public:
  // `own.role` says which end this is. The listener takes stream and peer from what the dialer claims.
  Handshake(const Token& token, const Claims& own, const Nonce& nonce);

  // Memory for the next bytes, as many as may be read now; empty once all have arrived.
  MutBytes room() noexcept;
  // That many bytes were written there.
  Exchange received(std::size_t bytes);
  // Says, as a listener, that there is no place left; the connection then ends.
  void turn_away();
  // The bytes to send now.
  Bytes unsent() const noexcept { return Bytes(outgoing_).subspan(sent_); }
  Exchange sent(std::size_t bytes) noexcept {
    sent_ += bytes;
    return state();
  }

  // Whether our proof was sent: a peer that closes after this rejected it.
  bool has_proved() const noexcept { return has_proved_; }
  // Whether a complete first message has arrived: more than silence or garbage.
  bool has_heard() const noexcept { return stage_ != Stage::kClaims; }
  // Whether the other end has proved that it knows the token.
  bool is_trusted() const noexcept { return stage_ == Stage::kText || stage_ == Stage::kEnd; }
  // The claims of the other end. REQUIRES: kDone. If its version is another one, only rank and peer are
  // valid.
  const Claims& peer() const noexcept { return peer_; }

 private:
  enum class Stage : std::uint8_t {
    kClaims,  // the listener waits for claims and nonce
    kNonce,   // the dialer waits for the listener's
    kProof,   // the listener waits for the dialer's
    kAnswer,  // the dialer waits for claims and proof
    kText,
    kEnd,
  };

  bool is_dialer() const noexcept { return own_.role == Claims::Role::kDialer; }
  Exchange state() const noexcept {
    return stage_ == Stage::kEnd && unsent().empty() ? Exchange::kDone : Exchange::kMore;
  }
  Exchange end_of_stage();
  Exchange after_claims();
  Exchange after_nonce();
  Exchange after_proof();
  Exchange after_answer();
  Exchange begin_text();
  Exchange end_text(std::string text);
  std::optional<Proof> proof_of(Claims::Role role) const noexcept;
  bool parse_claims();
  void send(Bytes bytes) { outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end()); }
  void expect(Stage stage, std::size_t bytes) noexcept;

  Token token_;
  Claims own_;
  Claims peer_;
  ClaimsBytes own_claims_{};
  ClaimsBytes peer_claims_{};
  Nonce own_nonce_{};
  Nonce peer_nonce_{};
  Stage stage_ = Stage::kClaims;
  // What has arrived in this stage. A stranger's bytes are only stored here, in the claims and in the nonce.
  std::array<std::byte, kClaimsBytes + kProofBytes> held_{};
  std::string text_;
  std::size_t held_bytes_ = 0;
  std::size_t wanted_ = 0;
  std::vector<std::byte> outgoing_;
  std::size_t sent_ = 0;
  bool has_proved_ = false;
};

// Sends and receives as much as the connection allows now.
Exchange advance_handshake(Handshake& handshake, const Connection& connection);

// One connection until both ends have identified themselves: TLS, where it is used, and the handshake inside.
//
// The dialing end decides by its policy whether it begins with TLS. The listening end sees that from the
// first byte. It accepts both, but a rank that comes in the clear although the policy demands TLS learns no
// more than that, and doesn't become part of the mesh.
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
  short awaits() const noexcept {
    const bool has_unsent = tls_ ? tls_->wants_room() : handshake_ && !handshake_->unsent().empty();
    return has_unsent ? POLLOUT : POLLIN;
  }

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
