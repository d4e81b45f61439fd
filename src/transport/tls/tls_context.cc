#include "transport/tls/tls_context.h"

#include <cstring>
#include <utility>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/ssl.h>

#include "base/errors.h"
#include "transport/tcp/address.h"

namespace deltawire {

namespace {

constexpr char kSuite[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteId[2] = {0x13, 0x01};
constexpr char kGroups[] = "X25519:P-256";
// A label, not a secret: whose key it is shows in the binder.
constexpr unsigned char kIdentity[] = {'d', 'e', 'l', 't', 'a', 'w', 'i', 'r', 'e'};
// What one read of the socket takes at most: one or two long records. More is not faster.
constexpr std::size_t kReadBytes = std::size_t{32} << 10;

const TlsContext& context_of(SSL* ssl) noexcept {
  return *static_cast<const TlsContext*>(SSL_get_app_data(ssl));
}

int use_session(SSL* ssl, const EVP_MD*, const unsigned char** identity, size_t* length,
                SSL_SESSION** session) noexcept {
  *identity = kIdentity;
  *length = sizeof kIdentity;
  *session = context_of(ssl).new_session(ssl);
  return *session != nullptr ? 1 : 0;
}

// Another identity gets no session: without a certificate the handshake then fails.
int find_session(SSL* ssl, const unsigned char* identity, size_t length, SSL_SESSION** session) noexcept {
  *session = nullptr;
  if (length != sizeof kIdentity || std::memcmp(identity, kIdentity, length) != 0) return 1;
  *session = context_of(ssl).new_session(ssl);
  return *session != nullptr ? 1 : 0;
}

bool configure(SSL_CTX* context) noexcept {
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT | SSL_OP_ALLOW_NO_DHE_KEX);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  // A server that ignores the pre-shared key would have to show a certificate: no authority is trusted.
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_psk_use_session_callback(context, use_session);
  SSL_CTX_set_psk_find_session_callback(context, find_session);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadBytes);
  // OpenSSL's servers demand a context for sessions once they verify.
  return SSL_CTX_set_session_id_context(context, kIdentity, sizeof kIdentity) == 1 &&
         SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
         SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
         SSL_CTX_set_ciphersuites(context, kSuite) == 1 && SSL_CTX_set1_groups_list(context, kGroups) == 1 &&
         SSL_CTX_set_num_tickets(context, 0) == 1 && SSL_CTX_set_max_early_data(context, 0) == 1 &&
         SSL_CTX_set_recv_max_early_data(context, 0) == 1;
}

}  // namespace

bool TlsContext::derive(const Token& token, Key& key) {
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr),
                                                              &EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(
      kdf ? EVP_KDF_CTX_new(kdf.get()) : nullptr, &EVP_KDF_CTX_free);
  if (!context) return false;
  std::string digest = "SHA256";
  std::string salt = "deltawire";
  std::string info = "TLS 1.3 external PSK";
  Token secret = token;
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt.data(), salt.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      OSSL_PARAM_construct_end()};
  const bool derived = EVP_KDF_derive(context.get(), key.data(), key.size(), parameters) == 1;
  OPENSSL_cleanse(secret.data(), secret.size());
  return derived;
}

Result<std::shared_ptr<const TlsContext>> TlsContext::make(const Token& token,
                                                           std::uint64_t records_per_key) {
  // A mesh's thread may still run while the process exits: OpenSSL must not clean up under it.
  (void)OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
  Key key{};
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  if (context == nullptr || !configure(context) || !derive(token, key)) {
    const char* reason = ERR_reason_error_string(ERR_get_error());
    SSL_CTX_free(context);
    return fail(ErrorCode::kSystem, std::string("OpenSSL can't set up TLS 1.3 with ") + kSuite + " (" +
                                        std::string(reason == nullptr ? "no reason given" : reason) +
                                        "); check its configuration (openssl.cnf)");
  }
  return std::shared_ptr<const TlsContext>(new TlsContext(context, key, records_per_key));
}

TlsContext::~TlsContext() {
  OPENSSL_cleanse(key_.data(), key_.size());
  SSL_CTX_free(context_);
}

ssl_session_st* TlsContext::new_session(ssl_st* connection) const noexcept {
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* suite = SSL_CIPHER_find(connection, kSuiteId);
  if (session != nullptr && suite != nullptr &&
      SSL_SESSION_set1_master_key(session, key_.data(), key_.size()) == 1 &&
      SSL_SESSION_set_cipher(session, suite) == 1 &&
      SSL_SESSION_set1_id_context(session, kIdentity, sizeof kIdentity) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

namespace {

constexpr std::array<std::pair<std::string_view, Encryption>, 3> kNames{
    {{"auto", Encryption::kAuto}, {"required", Encryption::kRequired}, {"off", Encryption::kOff}}};

}  // namespace

Result<Encryption> parse_encryption(std::string_view text) {
  for (const auto& [name, setting] : kNames) {
    if (text == name) return setting;
  }
  return invalid("encryption, or DELTAWIRE_ENCRYPTION, is \"" + std::string(text) +
                 "\"; it can be \"auto\", \"required\" or \"off\"");
}

std::string encryption_text(Encryption setting) {
  for (const auto& [name, value] : kNames) {
    if (value == setting) return "encryption=\"" + std::string(name) + "\"";
  }
  return "an unknown encryption";
}

bool EncryptionPolicy::demands_tls(int fd) const noexcept {
  return setting == Encryption::kRequired || (setting == Encryption::kAuto && !stays_on_this_machine(fd));
}

std::string refusal_of_clear_text(const std::string& self, Encryption setting, int fd) {
  const Result<SocketAddress> peer = SocketAddress::of_peer(fd);
  const bool is_local = peer && !peer->is_internet();
  const std::string from = is_local ? "this machine" : peer ? peer->endpoint().host : "an unknown address";
  return self + " has " + encryption_text(setting) + " and refuses a connection from " + from +
         " in the clear; if a relay or an address translation is between the ranks, set "
         "encryption=\"required\" on all of them";
}

}  // namespace deltawire
