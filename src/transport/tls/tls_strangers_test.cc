// What TLS keeps out: other tokens, other protocols, certificates, and bytes changed, repeated or left out.
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/links/connection.h"
#include "transport/tls/tls_pair_testing.h"

namespace deltawire::test::tls_strangers_test {
namespace {

using End = TlsLink::End;
using Progress = TlsLink::Progress;

TEST(TlsStrangers, AnotherTokenIsNoticedAtBothEnds) {
  TlsPair pair(tls_context(7), tls_context(8));
  EXPECT_FALSE(pair.shake_hands());
  EXPECT_EQ(pair.at_server, Progress::kFailed);
  EXPECT_EQ(pair.server->end(), End::kOtherToken);
  EXPECT_EQ(pair.at_client, Progress::kFailed);
  EXPECT_EQ(pair.client->end(), End::kOtherToken) << pair.client->reason();
}

TEST(TlsStrangers, OtherProtocolsAreRefused) {
  for (const std::string text : {"DWDH and so on, as without encryption", "GET / HTTP/1.1\r\n\r\n"}) {
    TlsPair pair(tls_context());
    pair.up->put(std::as_bytes(std::span(text)));
    EXPECT_EQ(pair.server->shake_hands(), Progress::kFailed);
    EXPECT_EQ(pair.server->end(), End::kNotTls) << pair.server->reason();
    EXPECT_FALSE(pair.server->has_answered() && pair.down->carried.size() > 7) << "an alert at most";
    pair.down->carried.clear();
    EXPECT_EQ(pair.client->shake_hands(), Progress::kMore);
    pair.down->put(std::as_bytes(std::span(text)));
    EXPECT_EQ(pair.client->shake_hands(), Progress::kFailed);
    EXPECT_EQ(pair.client->end(), End::kNotTls) << pair.client->reason();
  }
}

TEST(TlsStrangers, SilenceKeepsWaiting) {
  TlsPair pair(tls_context());
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(pair.server->shake_hands(), Progress::kMore);
    EXPECT_EQ(pair.client->shake_hands(), Progress::kMore);
    EXPECT_FALSE(pair.client->wants_room());
    EXPECT_FALSE(pair.server->has_answered());
    pair.up->read = pair.up->carried.size();  // nobody gets it
  }
  EXPECT_EQ(pair.client->end(), End::kNone);
}

// A bit of any byte, in either direction: the connection fails, or what was changed did not matter; what
// arrives was sent. After the handshake every bit matters.
TEST(TlsStrangers, NoByteCanBeChanged) {
  const auto bytes = pattern(100, 4);
  for (const bool upwards : {true, false}) {
    std::size_t in_handshake = 1;
    int waits = 0;  // for the rest of a record that became longer
    for (std::size_t at = 0, all = 1; at < all; ++at) {
      TlsPair pair(tls_context());
      const auto flip = [at](std::size_t position, std::byte& byte) {
        if (position == at) byte ^= std::byte{1} << (at % 8);
      };
      const std::shared_ptr<Lane> lane = upwards ? pair.up : pair.down;
      lane->on_byte = flip;
      const bool met = pair.shake_hands();
      if (met) in_handshake = std::max(in_handshake, lane->carried.size());
      TlsLink& from = upwards ? *pair.client : *pair.server;
      TlsLink& to = upwards ? *pair.server : *pair.client;
      const auto arrived = met ? transfer(from, to, bytes, 100) : std::vector<std::byte>{};
      ASSERT_TRUE(is_prefix(arrived, bytes)) << at;
      all = std::max(all, lane->carried.size());
      if (!met) {
        waits += pair.at_client == Progress::kMore && pair.at_server == Progress::kMore;
      } else if (at >= in_handshake) {
        EXPECT_EQ(arrived.size(), 0u) << at;
        // A longer record waits for bytes that nobody sends; everything else is found at once.
        if (to.end() != End::kNone) {
          EXPECT_EQ(to.end(), End::kAltered) << at << to.reason();
          std::vector<std::byte> got(10);
          EXPECT_EQ(to.recv(got).error, EBADMSG);
        } else {
          EXPECT_TRUE(at == in_handshake + 3 || at == in_handshake + 4) << at;
        }
      }
    }
    EXPECT_GT(in_handshake, 100u);
    EXPECT_LE(waits, 16);
  }
}

// The records of a stream, each with its header.
std::vector<std::vector<std::byte>> records_in(Bytes stream) {
  std::vector<std::vector<std::byte>> records;
  while (stream.size() >= 5) {
    const std::size_t length =
        5 + (std::to_integer<std::size_t>(stream[3]) << 8) + std::to_integer<std::size_t>(stream[4]);
    records.emplace_back(stream.begin(), stream.begin() + static_cast<std::ptrdiff_t>(length));
    stream = stream.subspan(length);
  }
  return records;
}

TEST(TlsStrangers, RecordsCannotBeRepeatedSwappedOrLeftOut) {
  const auto bytes = pattern(300, 4);
  const std::vector<std::vector<std::size_t>> orders{{0, 0}, {1, 0}, {0, 2}, {2}, {0, 1, 1}};
  for (const auto& order : orders) {
    TlsPair pair(tls_context());
    ASSERT_TRUE(pair.shake_hands());
    const std::size_t before = pair.up->carried.size();
    for (std::size_t at = 0; at < 300; at += 100) {
      const iovec piece{const_cast<std::byte*>(bytes.data()) + at, 100};
      ASSERT_EQ(pair.client->send({&piece, 1}).bytes, 100u);
    }
    const auto records = records_in(Bytes(pair.up->carried).subspan(before));
    ASSERT_EQ(records.size(), 3u);
    pair.up->carried.resize(before);
    for (const std::size_t record : order) pair.up->put(records[record]);
    std::vector<std::byte> got(400);
    std::vector<std::byte> arrived;
    IoResult result = pair.server->recv(got);
    while (result.kind == IoResult::Kind::kOk) {
      arrived.insert(arrived.end(), got.begin(), got.begin() + static_cast<std::ptrdiff_t>(result.bytes));
      result = pair.server->recv(got);
    }
    EXPECT_TRUE(is_prefix(arrived, bytes));
    EXPECT_LE(arrived.size(), 200u);
    EXPECT_EQ(pair.server->end(), End::kAltered);
    // And the sender hears of it.
    EXPECT_EQ(pair.client->recv(got).error, EBADMSG);
    EXPECT_EQ(pair.client->end(), End::kAltered) << pair.client->reason();
  }
}

// Everything that the client of another connection said, to a new server with the same token.
TEST(TlsStrangers, ARecordedConnectionIsUselessLater) {
  const auto bytes = pattern(100, 4);
  TlsPair recorded(tls_context());
  ASSERT_TRUE(recorded.shake_hands());
  ASSERT_EQ(transfer(*recorded.client, *recorded.server, bytes, 100).size(), bytes.size());
  TlsPair replayed(tls_context());
  replayed.up->put(recorded.up->carried);
  EXPECT_EQ(replayed.server->shake_hands(), Progress::kFailed);
  EXPECT_EQ(replayed.server->end(), End::kAltered) << replayed.server->reason();
  // And towards the client: what the server said, or the client itself.
  for (const auto& said : {recorded.down->carried, recorded.up->carried}) {
    TlsPair mirrored(tls_context());
    EXPECT_EQ(mirrored.client->shake_hands(), Progress::kMore);
    mirrored.down->put(said);
    EXPECT_EQ(mirrored.client->shake_hands(), Progress::kFailed);
  }
}

// One that has no token, but a certificate; or that wants an older version.
class OpenSslPeer {
 public:
  OpenSslPeer(bool is_server, int version, int fd) {
    SSL_CTX_set_min_proto_version(context_, version);
    SSL_CTX_set_max_proto_version(context_, version);
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    EXPECT_EQ(SSL_CTX_use_certificate(context_, certificate), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_, key), 1);
    X509_free(certificate);
    EVP_PKEY_free(key);
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, fd);
    is_server ? SSL_set_accept_state(ssl_) : SSL_set_connect_state(ssl_);
  }
  ~OpenSslPeer() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  OpenSslPeer(const OpenSslPeer&) = delete;
  OpenSslPeer& operator=(const OpenSslPeer&) = delete;

  bool shake_hands() { return SSL_do_handshake(ssl_) == 1; }

 private:
  SSL_CTX* context_ = SSL_CTX_new(TLS_method());
  SSL* ssl_ = nullptr;
};

TEST(TlsStrangers, ACertificateInsteadOfTheTokenIsRefused) {
  for (const int version : {TLS1_3_VERSION, TLS1_2_VERSION}) {
    for (const auto role : {TlsLink::Role::kClient, TlsLink::Role::kServer}) {
      auto ends = GuardedFd::open_socket_pair();
      OpenSslPeer stranger(role == TlsLink::Role::kClient, version, ends[1].get());
      TlsLink link(tls_context(), role, std::make_unique<SocketLink>(std::move(ends[0])));
      Progress progress = Progress::kMore;
      for (int turn = 0; turn < 10 && progress == Progress::kMore; ++turn) {
        progress = link.shake_hands();
        EXPECT_FALSE(stranger.shake_hands() && role == TlsLink::Role::kServer);
      }
      EXPECT_EQ(progress, Progress::kFailed) << version << link.reason();
    }
  }
}

}  // namespace
}  // namespace deltawire::test::tls_strangers_test
