// How the connections of a job are encrypted: TLS 1.3 with an external pre-shared key, which HKDF-SHA256
// derives from the token, and always a fresh (EC)DHE exchange (psk_dhe_ke), so that a recorded connection
// stays secret even if the token leaks later. One version, one cipher suite and no certificates, tickets or
// early data: nothing can be negotiated down.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "deltawire/connect.h"

struct ssl_ctx_st;
struct ssl_session_st;
struct ssl_st;

namespace deltawire {

// Thread rule: any thread; it never changes.
class TlsContext {
 public:
  // RFC 8446, section 5.5: with AES-GCM a key is good for 2^24.5 records. The sender replaces it before.
  static constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 23;
  // The first byte of a connection that begins with TLS.
  static constexpr std::byte kFirstByte{0x16};

  // `records_per_key`: fewer for tests. kSystem: this OpenSSL lacks TLS 1.3 or the cipher suite.
  static Result<std::shared_ptr<const TlsContext>> make(const Token& token,
                                                        std::uint64_t records_per_key = kRecordsPerKey);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* get() const noexcept { return context_; }
  std::uint64_t records_per_key() const noexcept { return records_per_key_; }
  // A session with the pre-shared key, for OpenSSL's callbacks; the caller owns it. nullptr: no memory.
  ssl_session_st* new_session(ssl_st* connection) const noexcept;

 private:
  using Key = std::array<unsigned char, 32>;
  TlsContext(ssl_ctx_st* context, const Key& key, std::uint64_t records_per_key) noexcept
      : context_(context), key_(key), records_per_key_(records_per_key) {}
  static bool derive(const Token& token, Key& key);

  ssl_ctx_st* const context_;
  Key key_;
  const std::uint64_t records_per_key_;
};

// Which connections of a rank must be encrypted.
struct EncryptionPolicy {
  Encryption setting = Encryption::kAuto;
  std::shared_ptr<const TlsContext> tls;

  // Whether the connection of that socket must be encrypted. With kAuto the addresses of its two ends decide,
  // which both ends see: a connection within a machine, by loopback or from an address to itself, needs no
  // encryption. Nobody outside the machine can forge that: its kernel drops such packets from a network.
  bool demands_tls(int fd) const noexcept;
};

// `encryption="required"`, for messages.
std::string encryption_text(Encryption setting);

// What `self` tells another process that came in the clear although it must not.
std::string refusal_of_clear_text(const std::string& self, Encryption setting, int fd);

}  // namespace deltawire
