// A link through TLS between two ends that know the token, over streams that come in pieces, end or fill up.
#include <thread>

#include "transport/links/connection.h"
#include "transport/tls/tls_pair_testing.h"

namespace deltawire::test::tls_link_test {
namespace {

using End = TlsLink::End;
using Progress = TlsLink::Progress;

TEST(TlsLink, CarriesBytesInPiecesOfAnySize) {
  const auto bytes = pattern(40000, 3);
  for (const std::size_t at_once :
       {1u, 2u, 3u, 5u, 7u, 16u, 22u, 100u, 1021u, 16383u, 16384u, 16385u, 100000u}) {
    TlsPair pair(tls_context());
    pair.up->at_once = pair.down->at_once = at_once;
    ASSERT_TRUE(pair.shake_hands()) << at_once;
    const std::size_t count = at_once < 100 ? 700 : bytes.size();
    EXPECT_TRUE(transfer(*pair.client, *pair.server, Bytes(bytes).first(count), at_once) ==
                std::vector(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)))
        << at_once;
    EXPECT_TRUE(is_prefix(transfer(*pair.server, *pair.client, Bytes(bytes).first(count), at_once), bytes));
  }
}

TEST(TlsLink, NothingOfItIsReadableOnTheWay) {
  const std::string text = "the gradients of the last layer";
  TlsPair pair(tls_context());
  ASSERT_TRUE(pair.shake_hands());
  const Bytes bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(transfer(*pair.client, *pair.server, bytes, 100).size(), bytes.size());
  EXPECT_TRUE(std::ranges::search(pair.up->carried, bytes).empty());
  const Token token = token_of(7);
  for (const auto& lane : {pair.up, pair.down})
    EXPECT_TRUE(std::ranges::search(lane->carried, token).empty());
}

TEST(TlsLink, SmallPiecesShareARecordAndRecordsACall) {
  TlsPair pair(tls_context());
  ASSERT_TRUE(pair.shake_hands());
  const std::size_t before = pair.up->carried.size();
  const std::size_t writes = pair.up->writes;
  const auto header = pattern(32, 1);
  const auto body = pattern(100000, 2);
  const std::array<Bytes, 4> parts{header, Bytes(), Bytes(body).first(50000), Bytes(body).subspan(50000)};
  const auto pieces = pieces_of(parts);
  const IoResult sent = pair.client->send(pieces);
  EXPECT_EQ(sent.bytes, 100032u);
  EXPECT_EQ(pair.up->writes, writes + 1);
  EXPECT_EQ(pair.up->carried.size() - before, 100032u + 7 * 22) << "seven records of at most 16 KiB";
  std::vector<std::byte> got(100032);
  EXPECT_EQ(pair.server->recv(got).bytes, got.size());
  EXPECT_TRUE(std::ranges::equal(Bytes(got).subspan(32), body));
}

// A line that takes little at a time; what is offered may change from call to call, as a shaped line does.
TEST(TlsLink, BytesCountAsSentOnceTheirRecordIsOnTheWay) {
  TlsPair pair(tls_context());
  ASSERT_TRUE(pair.shake_hands());
  const auto bytes = pattern(300000, 5);
  const std::size_t before = pair.up->carried.size();
  pair.up->room = 5000;
  std::vector<std::byte> arrived;
  std::vector<std::byte> room(7000);
  std::size_t sent = 0;
  for (std::size_t round = 0; arrived.size() < bytes.size() && round < 1000; ++round) {
    if (sent < bytes.size()) {
      const std::size_t offered = std::min<std::size_t>(1 + (round * 7919) % 60000, bytes.size() - sent);
      const iovec piece{const_cast<std::byte*>(bytes.data()) + sent, offered};
      const IoResult result = pair.client->send({&piece, 1});
      ASSERT_LE(result.bytes, offered);
      sent += result.bytes;
    }
    EXPECT_LE(sent, pair.up->carried.size() - before) << "only what the line took counts as sent";
    const IoResult result = pair.server->recv(room);
    if (result.kind == IoResult::Kind::kOk) {
      arrived.insert(arrived.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(result.bytes));
    }
  }
  EXPECT_TRUE(arrived == bytes);
  EXPECT_EQ(sent, bytes.size());
}

TEST(TlsLink, SaysWhatItHoldsThatTheSocketNoLongerShows) {
  TlsPair pair(tls_context());
  ASSERT_TRUE(pair.shake_hands());
  EXPECT_FALSE(pair.server->holds_received());
  const auto bytes = pattern(50000, 1);
  EXPECT_EQ(transfer(*pair.client, *pair.server, Bytes(bytes).first(100), 100).size(), 100u);
  const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  EXPECT_EQ(pair.client->send({&piece, 1}).bytes, bytes.size());
  std::vector<std::byte> got(10);
  EXPECT_EQ(pair.server->recv(got).bytes, 10u);
  EXPECT_TRUE(pair.server->holds_received());
  got.resize(60000);
  EXPECT_EQ(pair.server->recv(got).bytes, bytes.size() - 10);
  EXPECT_FALSE(pair.server->holds_received());
  EXPECT_EQ(pair.server->recv(got).kind, IoResult::Kind::kWouldBlock);
}

TEST(TlsLink, PeekedBytesAreReadAgain) {
  TlsPair pair(tls_context());
  ASSERT_TRUE(pair.shake_hands());
  const auto bytes = pattern(500, 1);
  for (int part = 0; part < 5; ++part) {
    const iovec piece{const_cast<std::byte*>(bytes.data()) + part * 100, 100};
    ASSERT_EQ(pair.client->send({&piece, 1}).bytes, 100u);
  }
  std::vector<std::byte> got(350);
  for (const std::size_t count : {350u, 120u, 350u}) {
    got.assign(count, std::byte{0});
    EXPECT_EQ(pair.server->peek(got).bytes, count) << "over the ends of records";
    EXPECT_TRUE(is_prefix(got, bytes));
  }
  EXPECT_TRUE(pair.server->holds_received());
  got.assign(1000, std::byte{0});
  EXPECT_EQ(pair.server->recv(got).bytes, bytes.size());
  got.resize(bytes.size());
  EXPECT_TRUE(got == bytes);
}

TEST(TlsLink, ACloseIsToldFromACut) {
  for (const bool closes : {true, false}) {
    TlsPair pair(tls_context());
    ASSERT_TRUE(pair.shake_hands());
    const auto bytes = pattern(100, 1);
    EXPECT_EQ(transfer(*pair.client, *pair.server, bytes, 100).size(), 100u);
    if (closes) {
      pair.client.reset();
    } else {
      pair.up->ended = true;
    }
    std::vector<std::byte> got(10);
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(pair.server->recv(got).kind, IoResult::Kind::kClosed);
      EXPECT_EQ(pair.server->end(), closes ? End::kClosed : End::kCut);
    }
  }
}

// Whatever the connection carried before it was cut is there, and nothing else.
TEST(TlsLink, CutAtAnyByteItEnds) {
  const auto bytes = pattern(300, 4);
  for (std::size_t at = 0;; ++at) {
    TlsPair pair(tls_context());
    pair.up->cut_at = at;
    const bool met = pair.shake_hands();
    const auto arrived = met ? transfer(*pair.client, *pair.server, bytes, 100) : std::vector<std::byte>{};
    ASSERT_TRUE(is_prefix(arrived, bytes)) << at;
    if (arrived.size() == bytes.size()) {
      EXPECT_GT(at, 600u);
      break;
    }
    if (!met) {
      ASSERT_EQ(pair.at_server, Progress::kFailed) << at;
    } else {
      std::vector<std::byte> got(10);
      ASSERT_EQ(pair.server->recv(got).kind, IoResult::Kind::kClosed) << at;
    }
    ASSERT_EQ(pair.server->end(), End::kCut) << at;
  }
}

TEST(TlsLink, KeysAreReplacedWhileBothEndsSend) {
  TlsPair pair(tls_context(7, 3));
  ASSERT_TRUE(pair.shake_hands());
  const auto bytes = pattern(200000, 8);
  for (int turn = 0; turn < 5; ++turn) {
    EXPECT_TRUE(transfer(*pair.client, *pair.server, bytes, 30000) == bytes);
    EXPECT_TRUE(transfer(*pair.server, *pair.client, bytes, 777) == bytes);
  }
  EXPECT_EQ(pair.server->end(), End::kNone);
  TlsPair with_one_key(tls_context());
  ASSERT_TRUE(with_one_key.shake_hands());
  for (int turn = 0; turn < 5; ++turn) {
    EXPECT_TRUE(transfer(*with_one_key.client, *with_one_key.server, bytes, 30000) == bytes);
  }
  EXPECT_GT(pair.up->carried.size(), with_one_key.up->carried.size() + 20 * 27)
      << "messages that replace keys";
}

TEST(TlsLink, CountsWhatIsUnacknowledgedWithoutTheFrames) {
  TlsPair pair(tls_context());
  ASSERT_TRUE(pair.shake_hands());
  EXPECT_EQ(pair.client->unacknowledged(), 0u);
  const auto bytes = pattern(100, 1);
  const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  for (int sent = 1; sent <= 3; ++sent) {
    ASSERT_EQ(pair.client->send({&piece, 1}).bytes, 100u);
    EXPECT_EQ(pair.client->unacknowledged(), 100u * static_cast<unsigned>(sent));
  }
  pair.up->read += 122;  // the first record
  EXPECT_EQ(pair.client->unacknowledged(), 200u);
  pair.up->read += 121;
  EXPECT_EQ(pair.client->unacknowledged(), 200u) << "half a record does not count";
  for (int sent = 0; sent < 100; ++sent) ASSERT_EQ(pair.client->send({&piece, 1}).bytes, 100u);
  EXPECT_LE(pair.client->unacknowledged(), 10200u);
  pair.up->read = pair.up->carried.size();
  EXPECT_EQ(pair.client->unacknowledged(), 0u);
}

TEST(TlsLink, BothDirectionsMayBeUsedByTwoThreads) {
  auto ends = GuardedFd::open_socket_pair();
  const auto context = tls_context(7, 50);
  TlsLink client(context, TlsLink::Role::kClient, std::make_unique<SocketLink>(std::move(ends[0])));
  TlsLink server(context, TlsLink::Role::kServer, std::make_unique<SocketLink>(std::move(ends[1])));
  const auto bytes = pattern(3000000, 6);
  const auto meet = [](TlsLink& end) {
    while (end.shake_hands() == Progress::kMore) std::this_thread::yield();
  };
  std::thread other([&] { meet(server); });
  meet(client);
  other.join();
  const auto send = [&bytes](TlsLink& end) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const iovec piece{const_cast<std::byte*>(bytes.data()) + sent, bytes.size() - sent};
      const IoResult result = end.send({&piece, 1});
      ASSERT_TRUE(result.kind == IoResult::Kind::kOk || result.kind == IoResult::Kind::kWouldBlock);
      sent += result.bytes;
    }
  };
  const auto receive = [&bytes](TlsLink& end) {
    std::vector<std::byte> got(bytes.size());
    for (std::size_t count = 0; count < got.size();) {
      const IoResult result = end.recv(MutBytes(got).subspan(count));
      ASSERT_TRUE(result.kind == IoResult::Kind::kOk || result.kind == IoResult::Kind::kWouldBlock);
      count += result.bytes;
    }
    EXPECT_TRUE(got == bytes);
  };
  std::vector<std::thread> threads;
  for (TlsLink* end : {&client, &server}) {
    threads.emplace_back([&, end] { send(*end); });
    threads.emplace_back([&, end] { receive(*end); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace deltawire::test::tls_link_test
