#include "transport/tcp/handshake.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>

#include "base/little_endian.h"

namespace deltawire {

namespace {

constexpr std::uint32_t kHandshakeMagic = 0x48445744;  // "DWDH" on the wire
constexpr std::uint32_t kBusyMagic = 0x53425744;       // "DWBS"
constexpr std::size_t kLifeAt = 28;
constexpr std::size_t kDigestAt = 36;
constexpr std::size_t kDigestBytes = kClaimsBytes - kDigestAt;
constexpr std::size_t kNonceBytes = std::tuple_size_v<Nonce>;
constexpr std::byte kNamesReporter{128};

constexpr std::string_view kDialerLabel = "deltawire dialer";
constexpr std::string_view kListenerLabel = "deltawire listen";
static_assert(kDialerLabel.size() == kListenerLabel.size());

}  // namespace

ClaimsBytes encode_claims(const Claims& claims) {
  ClaimsBytes bytes{};
  std::byte* at = bytes.data();
  store_le(at, kHandshakeMagic);
  store_le(at + 4, claims.version);
  at[6] = static_cast<std::byte>(claims.stream);
  at[7] = static_cast<std::byte>(claims.role);
  store_le(at + 8, claims.rank);
  store_le(at + 12, claims.peer);
  store_le(at + 16, claims.epoch);
  store_le(at + 20, static_cast<std::uint16_t>(claims.text.size()));
  at[22] = static_cast<std::byte>(claims.problem) | (claims.names_reporter ? kNamesReporter : std::byte{0});
  at[23] = static_cast<std::byte>(claims.encryption);
  store_le(at + 24, claims.world_size);
  store_le(at + 26, claims.suspect);
  store_le(at + kLifeAt, claims.life);
  const TextDigest digest = digest_of(claims.text);
  std::ranges::copy(Bytes(digest).first(kDigestBytes), at + kDigestAt);
  return bytes;
}

Handshake::Handshake(const Token& token, const Claims& own, const Nonce& nonce)
    : token_(token), own_(own), own_nonce_(nonce) {
  if (is_dialer()) {
    own_claims_ = encode_claims(own_);
    send(own_claims_);
    send(own_nonce_);
    expect(Stage::kNonce, kNonceBytes);
  } else {
    expect(Stage::kClaims, kClaimsBytes + kNonceBytes);
  }
}

void Handshake::expect(Stage stage, std::size_t bytes) noexcept {
  stage_ = stage;
  held_bytes_ = 0;
  wanted_ = bytes;
}

MutBytes Handshake::room() noexcept {
  const MutBytes all = stage_ == Stage::kText
                           ? MutBytes(reinterpret_cast<std::byte*>(text_.data()), text_.size())
                           : MutBytes(held_);
  return all.first(wanted_).subspan(held_bytes_);
}

Exchange Handshake::received(std::size_t bytes) {
  held_bytes_ += bytes;
  const bool has_magic = stage_ == Stage::kClaims && held_bytes_ >= sizeof kHandshakeMagic;
  if (has_magic && load_le<std::uint32_t>(held_.data()) != kHandshakeMagic) return Exchange::kStranger;
  return held_bytes_ < wanted_ || stage_ == Stage::kEnd ? state() : end_of_stage();
}

Exchange Handshake::end_of_stage() {
  switch (stage_) {
    case Stage::kClaims: return after_claims();
    case Stage::kNonce: return after_nonce();
    case Stage::kProof: return after_proof();
    case Stage::kAnswer: return after_answer();
    case Stage::kText: return end_text(std::move(text_));
    case Stage::kEnd: break;
  }
  return state();
}

Exchange Handshake::after_claims() {
  std::memcpy(peer_claims_.data(), held_.data(), kClaimsBytes);
  std::memcpy(peer_nonce_.data(), held_.data() + kClaimsBytes, kNonceBytes);
  send(own_nonce_);
  expect(Stage::kProof, kProofBytes);
  return Exchange::kMore;
}

Exchange Handshake::after_nonce() {
  std::memcpy(peer_nonce_.data(), held_.data(), kNonceBytes);
  const auto proof = proof_of(Claims::Role::kDialer);
  if (!proof) return Exchange::kBroken;
  send(*proof);
  has_proved_ = true;
  expect(Stage::kAnswer, kClaimsBytes + kProofBytes);
  return Exchange::kMore;
}

Exchange Handshake::after_proof() {
  Proof shown;
  std::memcpy(shown.data(), held_.data(), kProofBytes);
  const auto wanted = proof_of(Claims::Role::kDialer);
  if (!wanted || !equal_in_constant_time(shown, *wanted)) return Exchange::kStranger;
  if (!parse_claims()) return Exchange::kBroken;
  own_.stream = peer_.stream;
  own_.peer = peer_.rank;
  own_claims_ = encode_claims(own_);
  const auto proof = proof_of(Claims::Role::kListener);
  if (!proof) return Exchange::kBroken;
  send(own_claims_);
  send(*proof);
  send(std::as_bytes(std::span(own_.text)));
  has_proved_ = true;
  return begin_text();
}

void Handshake::turn_away() {
  if (is_dialer() || stage_ != Stage::kProof) return;
  std::array<std::byte, kClaimsBytes + kProofBytes> busy{};
  store_le(busy.data(), kBusyMagic);
  send(busy);
}

Exchange Handshake::after_answer() {
  if (load_le<std::uint32_t>(held_.data()) == kBusyMagic) return Exchange::kBusy;
  std::memcpy(peer_claims_.data(), held_.data(), kClaimsBytes);
  Proof shown;
  std::memcpy(shown.data(), held_.data() + kClaimsBytes, kProofBytes);
  const auto wanted = proof_of(Claims::Role::kListener);
  if (!wanted || !equal_in_constant_time(shown, *wanted)) return Exchange::kStranger;
  if (!parse_claims()) return Exchange::kBroken;
  send(std::as_bytes(std::span(own_.text)));
  return begin_text();
}

// This version can't read what another version sends after its claims.
Exchange Handshake::begin_text() {
  if (peer_.version != own_.version) {
    expect(Stage::kEnd, 0);
    return state();
  }
  const std::size_t length = load_le<std::uint16_t>(peer_claims_.data() + 20);
  text_.assign(length, '\0');
  expect(Stage::kText, length);
  return length == 0 ? end_text({}) : Exchange::kMore;
}

Exchange Handshake::end_text(std::string text) {
  const TextDigest digest = digest_of(text);
  if (!std::ranges::equal(Bytes(digest).first(kDigestBytes), Bytes(peer_claims_).subspan(kDigestAt))) {
    return Exchange::kBroken;
  }
  peer_.text = std::move(text);
  expect(Stage::kEnd, 0);
  return state();
}

std::optional<Proof> Handshake::proof_of(Claims::Role role) const noexcept {
  const Nonce& dialer_nonce = is_dialer() ? own_nonce_ : peer_nonce_;
  const Nonce& listener_nonce = is_dialer() ? peer_nonce_ : own_nonce_;
  const ClaimsBytes& dialer_claims = is_dialer() ? own_claims_ : peer_claims_;
  const ClaimsBytes& listener_claims = is_dialer() ? peer_claims_ : own_claims_;
  const bool of_dialer = role == Claims::Role::kDialer;
  const std::string_view label = of_dialer ? kDialerLabel : kListenerLabel;
  const std::array<Bytes, 5> pieces{std::as_bytes(std::span(label)), dialer_nonce, listener_nonce,
                                    dialer_claims, of_dialer ? Bytes() : Bytes(listener_claims)};
  return prove(token_, pieces);
}

bool Handshake::parse_claims() {
  const std::byte* at = peer_claims_.data();
  if (load_le<std::uint32_t>(at) != kHandshakeMagic) return false;
  peer_.version = load_le<std::uint16_t>(at + 4);
  peer_.rank = load_le<std::uint32_t>(at + 8);
  peer_.peer = load_le<std::uint32_t>(at + 12);
  if (peer_.version != own_.version) return true;
  const auto stream = static_cast<std::uint8_t>(at[6]);
  const bool has_stream = stream >= static_cast<std::uint8_t>(Claims::Stream::kData) &&
                          Claims::number_of(static_cast<Claims::Stream>(stream)) < Claims::kMoreStreamsMax;
  const auto role = is_dialer() ? Claims::Role::kListener : Claims::Role::kDialer;
  if (!has_stream || at[7] != static_cast<std::byte>(role)) return false;
  peer_.stream = static_cast<Claims::Stream>(stream);
  peer_.role = role;
  peer_.epoch = load_le<std::uint32_t>(at + 16);
  peer_.problem = std::to_integer<std::uint8_t>(at[22] & ~kNamesReporter);
  peer_.names_reporter = (at[22] & kNamesReporter) != std::byte{0};
  peer_.encryption = static_cast<Encryption>(at[23]);
  peer_.world_size = load_le<std::uint16_t>(at + 24);
  peer_.suspect = load_le<std::uint16_t>(at + 26);
  peer_.life = load_le<std::uint64_t>(at + kLifeAt);
  return load_le<std::uint16_t>(at + 20) <= kSettingsMax && peer_.encryption <= Encryption::kOff;
}

Exchange advance_handshake(Handshake& handshake, const Connection& connection) {
  Exchange state = handshake.sent(0);
  while (state == Exchange::kMore) {
    const Bytes unsent = handshake.unsent();
    const IoResult result = unsent.empty() ? connection.recv(handshake.room()) : connection.send(unsent);
    if (result.kind == IoResult::Kind::kWouldBlock) return Exchange::kMore;
    if (result.kind != IoResult::Kind::kOk) return Exchange::kClosed;
    state = unsent.empty() ? handshake.received(result.bytes) : handshake.sent(result.bytes);
  }
  return state;
}

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

}  // namespace deltawire
