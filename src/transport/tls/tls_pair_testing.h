// For tests: both ends of a TLS connection over a wire in memory.
#pragma once

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "transport/mesh_testing.h"
#include "transport/tls/memory_wire_testing.h"
#include "transport/tls/tls_link.h"

namespace deltawire::test {

inline std::shared_ptr<const TlsContext> tls_context(
    unsigned char fill = 7, std::uint64_t records_per_key = TlsContext::kRecordsPerKey) {
  auto context = TlsContext::make(token_of(fill), records_per_key);
  EXPECT_TRUE(context.has_value()) << context.error().message;
  return context ? *context : nullptr;
}

// What a test sends through it, and what arrives.
struct TlsPair {
  std::shared_ptr<Lane> up = std::make_shared<Lane>();    // from client to server
  std::shared_ptr<Lane> down = std::make_shared<Lane>();  // back
  std::unique_ptr<TlsLink> client;
  std::unique_ptr<TlsLink> server;
  TlsLink::Progress at_client = TlsLink::Progress::kMore;
  TlsLink::Progress at_server = TlsLink::Progress::kMore;

  explicit TlsPair(const std::shared_ptr<const TlsContext>& context) : TlsPair(context, context) {}
  TlsPair(const std::shared_ptr<const TlsContext>& of_client,
          const std::shared_ptr<const TlsContext>& of_server) {
    client =
        std::make_unique<TlsLink>(of_client, TlsLink::Role::kClient, std::make_unique<WireEnd>(up, down));
    server =
        std::make_unique<TlsLink>(of_server, TlsLink::Role::kServer, std::make_unique<WireEnd>(down, up));
  }

  // Lets both ends continue until neither gets further.
  bool shake_hands() {
    for (std::size_t seen = 1, before = 0; seen != before;) {
      before = seen;
      if (at_client == TlsLink::Progress::kMore) at_client = client->shake_hands();
      if (at_server == TlsLink::Progress::kMore) at_server = server->shake_hands();
      seen = 1 + up->carried.size() + down->carried.size() + up->read + down->read;
    }
    return at_client == TlsLink::Progress::kDone && at_server == TlsLink::Progress::kDone;
  }
};

inline std::vector<iovec> pieces_of(std::span<const Bytes> all) {
  std::vector<iovec> pieces;
  for (const Bytes bytes : all) pieces.push_back({const_cast<std::byte*>(bytes.data()), bytes.size()});
  return pieces;
}

// Sends and receives in turns, `at_once` bytes to a call, until all has arrived or nothing moves any more.
// Returns what arrived.
inline std::vector<std::byte> transfer(TlsLink& from, TlsLink& to, Bytes all, std::size_t at_once) {
  std::vector<std::byte> arrived;
  std::vector<std::byte> room(at_once);
  std::size_t sent = 0;
  for (int idle = 0; idle < 3 && arrived.size() < all.size();) {
    ++idle;
    if (sent < all.size()) {
      const Bytes next = all.subspan(sent, std::min(at_once, all.size() - sent));
      const iovec piece{const_cast<std::byte*>(next.data()), next.size()};
      const IoResult result = from.send({&piece, 1});
      if (result.kind == IoResult::Kind::kOk) idle = 0;
      EXPECT_LE(result.bytes, next.size());
      sent += result.bytes;
    }
    const IoResult result = to.recv(room);
    if (result.kind != IoResult::Kind::kOk) continue;
    idle = 0;
    arrived.insert(arrived.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(result.bytes));
  }
  return arrived;
}

inline bool is_prefix(const std::vector<std::byte>& arrived, Bytes sent) {
  return arrived.size() <= sent.size() && std::ranges::equal(arrived, sent.first(arrived.size()));
}

}  // namespace deltawire::test
