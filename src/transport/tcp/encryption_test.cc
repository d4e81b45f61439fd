// Meshes whose connections are encrypted, and those who try to come in between.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/refusal_testing.h"
#include "transport/mesh_testing.h"
#include "transport/tcp/relay_testing.h"
#include "transport/tls/tls_context.h"

namespace deltawire::test::encryption_test {
namespace {

using Plan = std::function<void(int, MeshOptions&)>;

std::vector<Outcome> connect_encrypted(Listeners all, const Plan& change) {
  return connect_all(std::move(all), [&change](int rank, MeshOptions& options) {
    options.encryption = Encryption::kRequired;
    change(rank, options);
  });
}

// Two ranks, the second of which dials the first through a relay.
struct Between {
  Listeners all = listen_all(2);
  Relay relay;

  explicit Between(Relay::Meddle meddle) : relay(all.endpoints[0], std::move(meddle)) {}
  std::vector<Outcome> connect(const Plan& change = [](int, MeshOptions&) {}) {
    all.endpoints[0] = relay.endpoint();
    return connect_encrypted(std::move(all), change);
  }
};

// Sends a known message from rank 1 to rank 0; what rank 0 gets, or its error.
Result<std::vector<std::byte>> message_across(Transport& from, Transport& to,
                                              const std::vector<std::byte>& sent, Error& senders) {
  std::vector<std::byte> got(sent.size());
  const Handle receive = to.post_recv(1, 5, got);
  const Handle send = send_bytes(from, 0, 5, sent);
  const auto received = to.wait(receive, soon());
  const auto confirmed = from.wait(send, soon());
  if (!confirmed) senders = confirmed.error();
  if (!received) {
    senders = from.failure(5s).value_or(senders);
    return forward_error(received);
  }
  return got;
}

// A man in the middle passes the meeting on, then finds a gradient by its bytes and changes it. In the clear
// nobody notices. Encrypted he finds nothing, and whatever he changes ends the mesh.
TEST(Encryption, AManInTheMiddleChangesNothing) {
  const auto gradient = pattern(400, 9);
  for (const Encryption encryption : {Encryption::kOff, Encryption::kRequired}) {
    std::atomic<bool> begun = false;
    std::atomic<int> found = 0;
    Between between([&](int, bool upwards, std::vector<std::byte>& bytes, std::vector<std::byte>&) {
      if (!begun || !upwards) return true;
      const auto match = std::ranges::search(bytes, Bytes(gradient).first(100));
      if (!match.empty()) ++found;
      auto& changed = match.empty() ? bytes[bytes.size() / 2] : match[7];
      changed ^= std::byte{0x40};
      return true;
    });
    auto ranks = between.connect([&](int, MeshOptions& options) { options.encryption = encryption; });
    ASSERT_TRUE(ranks[0] && ranks[1]) << ranks[1].error().message;
    begun = true;
    Error senders;
    const auto got = message_across(**ranks[1], **ranks[0], gradient, senders);
    if (encryption == Encryption::kOff) {
      EXPECT_EQ(found, 1);
      ASSERT_TRUE(got.has_value()) << got.error().message;
      EXPECT_FALSE(*got == gradient) << "changed, and nobody noticed";
      continue;
    }
    EXPECT_EQ(found, 0);
    testing::expect_refused(got, ErrorCode::kCorrupt, 1, {"were changed, repeated or left out on the way"});
    EXPECT_EQ(senders.code, ErrorCode::kCorrupt) << senders.message;
  }
}

TEST(Encryption, NothingThatPassesIsReadable) {
  const auto gradient = pattern(5000, 9);
  std::mutex mutex;
  std::vector<std::byte> all;
  Between between([&](int, bool, std::vector<std::byte>& bytes, std::vector<std::byte>&) {
    const std::lock_guard lock(mutex);
    all.insert(all.end(), bytes.begin(), bytes.end());
    return true;
  });
  const std::string settings = "direct(3lc:s=1.75)";
  auto ranks = between.connect([&](int, MeshOptions& options) { options.settings = settings; });
  ASSERT_TRUE(ranks[0] && ranks[1]);
  Error senders;
  const auto got = message_across(**ranks[1], **ranks[0], gradient, senders);
  ASSERT_TRUE(got.has_value()) << got.error().message;
  EXPECT_TRUE(*got == gradient);
  const std::lock_guard lock(mutex);
  EXPECT_GT(all.size(), 5000u);
  EXPECT_TRUE(std::ranges::search(all, Bytes(gradient).first(16)).empty());
  EXPECT_TRUE(std::ranges::search(all, std::as_bytes(std::span(settings))).empty());
  EXPECT_TRUE(std::ranges::search(all, std::as_bytes(std::span(std::string_view("DWDH")))).empty());
}

// Control messages: an abort that is changed is not believed, and not lost without a word.
TEST(Encryption, AChangedControlStreamIsNoticed) {
  std::atomic<bool> begun = false;
  Between between([&](int, bool upwards, std::vector<std::byte>& bytes, std::vector<std::byte>&) {
    if (begun && upwards) bytes.back() ^= std::byte{1};
    return true;
  });
  auto ranks = between.connect();
  ASSERT_TRUE(ranks[0] && ranks[1]);
  begun = true;
  (*ranks[1])->abort({ErrorCode::kAborted, "rank 1 gives up", 1});
  const auto error = (*ranks[0])->failure(10s);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kCorrupt) << error->message;
  EXPECT_EQ(error->suspect, 1);
}

TEST(Encryption, WhoStripsItIsNamedByTheTime) {
  const std::string clear = "DWDH........................................................................";
  const auto answers_in_clear = [&](int, bool upwards, std::vector<std::byte>&,
                                    std::vector<std::byte>& back) {
    const auto bytes = std::as_bytes(std::span(clear));
    if (upwards) back.assign(bytes.begin(), bytes.end());
    return true;
  };
  const auto cuts_what_is_tls = [](int, bool, std::vector<std::byte>& bytes, std::vector<std::byte>&) {
    return bytes.front() != TlsContext::kFirstByte;
  };
  const std::vector<std::pair<Relay::Meddle, const char*>> attempts{
      {answers_in_clear, "who strips the encryption?"}, {cuts_what_is_tls, "who cuts what is encrypted?"}};
  for (const auto& [meddle, says] : attempts) {
    Between between(meddle);
    const Deadline start = Clock::now();
    const auto ranks = between.connect([](int, MeshOptions& options) { options.connect_timeout = 2s; });
    EXPECT_LT(Clock::now() - start, 15s);
    ASSERT_FALSE(ranks[1].has_value());
    EXPECT_TRUE(has(ranks[1].error(), says)) << ranks[1].error().message;
    EXPECT_TRUE(has(ranks[1].error(), "rank 0")) << ranks[1].error().message;
    EXPECT_EQ(ranks[1].error().suspect, 0);
    EXPECT_FALSE(ranks[0].has_value());
  }
}

// With other settings ranks do not connect, whichever way; all are told which ranks differ, and in what.
TEST(Encryption, OtherSettingsAreAMismatchThatNamesThem) {
  constexpr std::array kAll{Encryption::kAuto, Encryption::kRequired, Encryption::kOff};
  for (const Encryption first : kAll) {
    for (const Encryption second : kAll) {
      const Deadline start = Clock::now();
      const auto ranks = connect_encrypted(listen_all(2), [&](int rank, MeshOptions& options) {
        options.encryption = rank == 0 ? first : second;
      });
      EXPECT_LT(Clock::now() - start, 20s);
      for (const Outcome& outcome : ranks) {
        ASSERT_EQ(outcome.has_value(), first == second);
        if (outcome) continue;
        EXPECT_EQ(outcome.error().code, ErrorCode::kMismatch) << outcome.error().message;
        EXPECT_TRUE(has(outcome.error(), "rank 0 has " + encryption_text(first))) << outcome.error().message;
        EXPECT_TRUE(has(outcome.error(), "rank 1 has " + encryption_text(second))) << outcome.error().message;
      }
    }
  }
}

TEST(Encryption, AllRanksHearOfTheOneWithAnotherSetting) {
  const auto ranks = connect_encrypted(listen_all(3), [](int rank, MeshOptions& options) {
    if (rank == 2) options.encryption = Encryption::kOff;
  });
  for (const Outcome& outcome : ranks) {
    testing::expect_refused(outcome, ErrorCode::kMismatch, "rank 2 has encryption=\"off\"");
  }
}

TEST(Encryption, ARecordedMeetingIsTurnedAway) {
  std::mutex mutex;
  std::vector<std::vector<std::byte>> said(2);
  Between recorded([&](int connection, bool upwards, std::vector<std::byte>& bytes, std::vector<std::byte>&) {
    const std::lock_guard lock(mutex);
    auto& all = said[static_cast<std::size_t>(connection)];
    if (upwards) all.insert(all.end(), bytes.begin(), bytes.end());
    return true;
  });
  auto first = recorded.connect();
  ASSERT_TRUE(first[0] && first[1]);
  first.clear();
  // The same job starts again; somebody plays rank 1 back before it comes.
  Listeners all = listen_all(2);
  const auto address = *SocketAddress::from_numeric(all.endpoints[0].host, all.endpoints[0].port);
  std::vector<GuardedFd> replays;
  for (const auto& bytes : said) {
    replays.push_back(GuardedFd::open([] { return ::socket(AF_INET, SOCK_STREAM, 0); }));
    ASSERT_EQ(::connect(replays.back().get(), address.get(), address.length()), 0);
    ASSERT_EQ(::send(replays.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  auto ranks = connect_encrypted(std::move(all), [](int, MeshOptions&) {});
  ASSERT_TRUE(ranks[0] && ranks[1]) << ranks[0].error().message;
  run_ranks(2, [&](int rank) { exchange_once(**ranks[static_cast<std::size_t>(rank)]); });
  for (const GuardedFd& replay : replays) {
    timeval patience{5, 0};
    ::setsockopt(replay.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::vector<std::byte> answer(5000);
    ssize_t got = 1;
    while (got > 0) got = ::recv(replay.get(), answer.data(), answer.size(), 0);
    EXPECT_TRUE(got == 0 || errno == ECONNRESET) << "it was not hung up on";
  }
}

TEST(Encryption, AnotherTokenIsNamed) {
  const auto ranks = connect_encrypted(listen_all(2), [](int rank, MeshOptions& options) {
    options.connect_timeout = 3s;
    if (rank == 1) options.token = token_of(8);
  });
  ASSERT_FALSE(ranks[0] || ranks[1]);
  EXPECT_EQ(ranks[1].error().code, ErrorCode::kUnauthorized) << ranks[1].error().message;
  EXPECT_EQ(ranks[1].error().suspect, 0);
  EXPECT_TRUE(has(ranks[1].error(), "same token?")) << ranks[1].error().message;
  EXPECT_TRUE(has(ranks[0].error(), "came with another token")) << ranks[0].error().message;
}

TEST(Encryption, ASilentListenerIsNamedAtTheTimeout) {
  Listeners all = listen_all(2);
  MeshOptions options = mesh_options(1, all.endpoints);
  options.encryption = Encryption::kRequired;
  options.connect_timeout = 1s;
  const Deadline start = Clock::now();
  const auto outcome = connect_tcp(std::move(all.listeners[1]), options);
  EXPECT_LT(Clock::now() - start, 10s);
  testing::expect_refused(outcome, ErrorCode::kTimeout, 0, {"rank 0 takes the connection and says nothing"});
}

// A peer that falls silent in the middle of TLS's handshake keeps no real rank out.
TEST(Encryption, HalfAHandshakeKeepsNobodyWaiting) {
  Listeners all = listen_all(2);
  std::atomic<int> passed = 0;
  const Relay relay(all.endpoints[0],
                    [&](int, bool upwards, std::vector<std::byte>& bytes, std::vector<std::byte>&) {
                      if (upwards) bytes.resize(std::min<std::size_t>(bytes.size(), 100));
                      ++passed;
                      return true;
                    });
  MeshOptions stuck = mesh_options(1, all.endpoints);
  stuck.endpoints[0] = relay.endpoint();
  stuck.encryption = Encryption::kRequired;
  stuck.connect_timeout = 2s;
  std::thread other([&] {
    const auto outcome = connect_tcp(*listen_tcp("127.0.0.1"), stuck);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_TRUE(has(outcome.error(), "with rank 0 (")) << outcome.error().message;
  });
  while (passed == 0) std::this_thread::sleep_for(1ms);
  auto ranks = connect_encrypted(std::move(all), [](int, MeshOptions&) {});
  EXPECT_TRUE(ranks[0] && ranks[1]);
  other.join();
}

TEST(Encryption, RequiredNeedsAToken) {
  for (const Outcome& outcome :
       connect_encrypted(listen_all(2), [](int, MeshOptions& options) { options.token = {}; })) {
    testing::expect_refused(outcome, ErrorCode::kInvalidArgument, "needs a token");
  }
}

TEST(Encryption, RanksMeetAtARendezvousInsideIt) {
  std::mutex mutex;
  std::vector<std::byte> all;
  auto first = listen_tcp("127.0.0.1");
  const Relay relay((*first)->endpoint(),
                    [&](int, bool, std::vector<std::byte>& bytes, std::vector<std::byte>&) {
                      const std::lock_guard lock(mutex);
                      all.insert(all.end(), bytes.begin(), bytes.end());
                      return true;
                    });
  std::vector<std::unique_ptr<Transport>> ranks(3);
  const Endpoint rendezvous = (*first)->endpoint();
  run_ranks(3, [&](int rank) {
    MeshOptions options;
    options.rank = rank;
    options.world_size = 3;
    options.rendezvous = rank == 0 ? rendezvous : relay.endpoint();
    options.token = token_of(7);
    options.encryption = Encryption::kRequired;
    auto listener = rank == 0 ? std::move(*first) : *listen_tcp("127.0.0.1");
    auto connected = connect_tcp(std::move(listener), options);
    ASSERT_TRUE(connected.has_value()) << connected.error().message;
    ranks[static_cast<std::size_t>(rank)] = std::move(*connected);
  });
  run_ranks(3, [&](int rank) { exchange_once(*ranks[static_cast<std::size_t>(rank)]); });
  const std::lock_guard lock(mutex);
  EXPECT_GT(all.size(), 10000u);
  EXPECT_TRUE(std::ranges::search(all, std::as_bytes(std::span(std::string_view("127.0.0.1")))).empty());
}

}  // namespace
}  // namespace deltawire::test::encryption_test
