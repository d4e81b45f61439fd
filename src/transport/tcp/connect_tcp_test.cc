// How TCP meshes come together, and who is kept out.
#include <algorithm>
#include <atomic>
#include <deque>
#include <optional>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/tcp/hello.h"
#include "transport/test_mesh.h"

namespace deltawire::test {
namespace {

bool has(const Error& error, const std::string& part) {
  return error.message.find(part) != std::string::npos;
}

// A bare connection to a rank's port, as strangers have it.
class Stranger {
 public:
  explicit Stranger(const Endpoint& endpoint) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint.port);
    ::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  // One that a rank has dialed.
  explicit Stranger(int listening_fd) : fd_(::accept(listening_fd, nullptr, nullptr)) { EXPECT_GE(fd_, 0); }
  Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Stranger() {
    if (fd_ >= 0) ::close(fd_);
  }
  void say(Bytes bytes) const { (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT); }
  // As many bytes as come, up to `most`, before the other end hangs up.
  std::vector<std::byte> hear(std::size_t most) const {
    std::vector<std::byte> bytes(most);
    std::size_t length = 0;
    while (length < most) {
      const ssize_t got = ::recv(fd_, bytes.data() + length, most - length, 0);
      if (got <= 0) break;
      length += static_cast<std::size_t>(got);
    }
    bytes.resize(length);
    return bytes;
  }
  bool was_hung_up_on() const { return hear(1).empty(); }

 private:
  int fd_;
};

Hello hello_of(int rank, int peer, int world_size) {
  Hello hello;
  hello.rank = static_cast<std::uint32_t>(rank);
  hello.peer = static_cast<std::uint32_t>(peer);
  hello.world_size = static_cast<std::uint32_t>(world_size);
  return hello;
}

// The first message of one who knows the protocol; the token makes no difference to it.
std::vector<std::byte> first_message(const Hello& hello) {
  const Handshake handshake(token_of(8), hello, *random_nonce());
  return {handshake.unsent().begin(), handshake.unsent().end()};
}

using Outcome = Result<std::unique_ptr<Transport>>;

// Connects every rank on a thread of its own, with the options as `change` left them.
std::vector<Outcome> connect_all(Listeners all, const std::function<void(int, MeshOptions&)>& change) {
  const auto world = all.listeners.size();
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < world; ++i) outcomes.emplace_back(fail(ErrorCode::kState, ""));
  run_ranks(static_cast<int>(world), [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    MeshOptions options = mesh_options(rank, all.endpoints);
    change(rank, options);
    outcomes[at] = connect_tcp(std::move(all.listeners[at]), options);
  });
  return outcomes;
}

void exchange_once(Transport& self) {
  const auto bytes = pattern(5000, 1);
  for (int peer = 0; peer < self.world_size(); ++peer) {
    if (peer == self.rank()) continue;
    std::vector<std::byte> got(5000);
    const Handle receive = self.post_recv(peer, 1, got);
    const Handle send = send_bytes(self, peer, 1, bytes);
    EXPECT_TRUE(self.wait(receive, soon()).has_value());
    EXPECT_TRUE(self.wait(send, soon()).has_value());
    EXPECT_TRUE(got == bytes);
  }
}

TEST(ConnectTcp, StrangersDoNotDisturb) {
  Listeners all = listen_all(3);
  std::vector<Stranger> strangers;
  const std::vector<std::byte> hello = first_message(hello_of(1, 0, 3));
  const std::vector<std::byte> garbage = pattern(1000000, 4);
  for (int i = 0; i < 100; ++i) {
    for (const Endpoint& endpoint : all.endpoints) strangers.emplace_back(endpoint);       // silent
    strangers.back().say(Bytes(hello).first(static_cast<std::size_t>(i) % hello.size()));  // half a hello
  }
  for (const Endpoint& endpoint : all.endpoints) {
    strangers.emplace_back(endpoint).say(garbage);
    strangers.emplace_back(endpoint).say(hello);  // then silent
    strangers.emplace_back(endpoint).say(hello);
    strangers.back().say(garbage);  // in the place of a proof
  }
  Ranks ranks(3);
  run_ranks(3, [&](int rank) {
    if (rank == 2) std::this_thread::sleep_for(300ms);
    const auto at = static_cast<std::size_t>(rank);
    auto transport = connect_tcp(std::move(all.listeners[at]), mesh_options(rank, all.endpoints));
    ASSERT_TRUE(transport.has_value()) << transport.error().message;
    exchange_once(**transport);
    ranks[at] = std::move(*transport);
  });
  for (const Stranger& stranger : strangers) EXPECT_LE(stranger.hear(1000).size(), sizeof(Nonce));
}

TEST(ConnectTcp, TenThousandStrangersDoNotDisturb) {
  Listeners all = listen_all(2);
  const std::vector<std::byte> hello = first_message(hello_of(1, 0, 2));
  std::thread rank0([&] {
    const auto result = connect_tcp(std::move(all.listeners[0]), mesh_options(0, all.endpoints));
    EXPECT_TRUE(result.has_value()) << result.error().message;
  });
  std::deque<Stranger> open;
  for (int i = 0; i < 10000; ++i) {
    const Stranger& stranger = open.emplace_back(all.endpoints[0]);
    if (i % 4 == 1) stranger.say(hello);
    if (i % 4 == 2) stranger.say(Bytes(hello).first(91));
    if (i % 4 == 3) stranger.say(pattern(200, static_cast<std::uint64_t>(i)));
    if (open.size() > 200) open.pop_front();
  }
  const auto result = connect_tcp(std::move(all.listeners[1]), mesh_options(1, all.endpoints));
  EXPECT_TRUE(result.has_value()) << result.error().message;
  rank0.join();
}

TEST(ConnectTcp, AStrangerLearnsNothing) {
  Listeners all = listen_all(2);
  const Stranger garbler(all.endpoints[0]);
  garbler.say(pattern(1000, 1));
  const Stranger knower(all.endpoints[0]);
  knower.say(first_message(hello_of(1, 0, 2)));
  std::thread rank0([&] {
    MeshOptions options = mesh_options(0, all.endpoints);
    options.connect_timeout = 2s;
    const auto result = connect_tcp(std::move(all.listeners[0]), options);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kTimeout);
    EXPECT_EQ(result.error().suspect, 1);
    EXPECT_TRUE(has(result.error(), "rank 1")) << result.error().message;
    EXPECT_TRUE(has(result.error(), "2 connections came with another token")) << result.error().message;
  });
  EXPECT_TRUE(garbler.was_hung_up_on()) << "without a byte of answer";
  EXPECT_EQ(knower.hear(sizeof(Nonce)).size(), sizeof(Nonce));
  knower.say(pattern(sizeof(Proof), 2));
  EXPECT_TRUE(knower.was_hung_up_on()) << "without another byte";
  rank0.join();
}

// Listens as rank 0 without the token, for rank 1 to dial.
struct Impostor {
  Impostor() : fd(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;  // a rank shall listen here afterwards
    (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd, 10), 0);
    socklen_t length = sizeof address;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    endpoint = {"127.0.0.1", ntohs(address.sin_port)};
  }
  ~Impostor() { ::close(fd); }
  int fd;
  Endpoint endpoint;
};

TEST(ConnectTcp, AnImpostorLearnsNothingAndIsNotBelieved) {
  const Impostor impostor;
  Listeners all = listen_all(2);
  MeshOptions options = mesh_options(1, {impostor.endpoint, all.endpoints[1]});
  options.connect_timeout = 2s;
  options.settings = "settings are nobody else's business";
  for (std::size_t i = 0; i < options.token.size(); ++i)
    options.token[i] = static_cast<std::byte>(i * 37 + 11);
  std::thread rank1([&] {
    const auto result = connect_tcp(std::move(all.listeners[1]), options);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kUnauthorized) << result.error().message;
    EXPECT_EQ(result.error().suspect, 0);
  });
  std::vector<std::byte> heard;
  for (int i = 0; i < 2; ++i) {
    const Stranger victim(impostor.fd);
    heard = victim.hear(kClaimsBytes + sizeof(Nonce));
    EXPECT_EQ(heard.size(), kClaimsBytes + sizeof(Nonce));
    victim.say(pattern(sizeof(Nonce), 1));
    const std::vector<std::byte> proof = victim.hear(sizeof(Proof));
    EXPECT_EQ(proof.size(), sizeof(Proof));
    heard.insert(heard.end(), proof.begin(), proof.end());
    // Its own words back, as if they were an answer.
    victim.say(Bytes(heard).first(kClaimsBytes));
    victim.say(proof);
    EXPECT_TRUE(victim.was_hung_up_on()) << "settings are for those who know the token";
    for (std::size_t at = 0; at + 4 <= options.token.size(); ++at) {
      EXPECT_EQ(std::ranges::search(heard, Bytes(options.token).subspan(at, 4)).size(), 0u);
    }
  }
  rank1.join();
}

TEST(ConnectTcp, AnImpostorOnlyDelaysUntilTheRankIsThere) {
  Listeners all = listen_all(2);
  const Endpoint endpoint = all.endpoints[0];
  std::optional<Impostor> impostor(std::in_place);
  // Rank 1 dials the impostor; then rank 0 comes, at the same address.
  all.listeners[0].reset();
  std::thread rank1([&] {
    MeshOptions options = mesh_options(1, {impostor->endpoint, all.endpoints[1]});
    const auto result = connect_tcp(std::move(all.listeners[1]), options);
    EXPECT_TRUE(result.has_value()) << result.error().message;
  });
  Stranger(impostor->fd).say(pattern(200, 1));
  const Endpoint taken = impostor->endpoint;
  impostor.reset();
  auto listener = listen_tcp("127.0.0.1", taken.port);
  ASSERT_TRUE(listener.has_value()) << listener.error().message;
  const auto result = connect_tcp(std::move(*listener), mesh_options(0, {taken, all.endpoints[1]}));
  EXPECT_TRUE(result.has_value()) << result.error().message;
  rank1.join();
}

TEST(ConnectTcp, AProofPassedOnToAnotherRankIsRefused) {
  // Who sits at rank 0's address hands every byte of rank 2's to rank 1, and back.
  const Impostor relay;
  Listeners all = listen_all(3);
  std::vector<Outcome> outcomes;
  for (int i = 0; i < 3; ++i) outcomes.emplace_back(fail(ErrorCode::kState, ""));
  std::thread between([&] {
    const Stranger victim(relay.fd);
    const Stranger other(all.endpoints[1]);
    other.say(victim.hear(kClaimsBytes + sizeof(Nonce)));
    victim.say(other.hear(sizeof(Nonce)));
    other.say(victim.hear(sizeof(Proof)));
    victim.say(other.hear(kClaimsBytes + sizeof(Proof)));
    EXPECT_TRUE(victim.was_hung_up_on());
  });
  run_ranks(3, [&](int rank) {
    if (rank == 0) return;
    const auto at = static_cast<std::size_t>(rank);
    MeshOptions options = mesh_options(rank, all.endpoints);
    if (rank == 2) options.endpoints[0] = relay.endpoint;
    options.connect_timeout = 5s;
    outcomes[at] = connect_tcp(std::move(all.listeners[at]), options);
  });
  between.join();
  for (const int rank : {1, 2}) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::kMismatch) << outcome.error().message;
  }
}

TEST(ConnectTcp, ARankWithAnotherTokenIsToldSo) {
  const auto outcomes = connect_all(listen_all(2), [](int rank, MeshOptions& options) {
    options.connect_timeout = 2s;
    if (rank == 1) options.token = token_of(8);
  });
  ASSERT_FALSE(outcomes[0].has_value());
  EXPECT_EQ(outcomes[0].error().code, ErrorCode::kTimeout);
  EXPECT_TRUE(has(outcomes[0].error(), "token")) << outcomes[0].error().message;
  ASSERT_FALSE(outcomes[1].has_value());
  EXPECT_EQ(outcomes[1].error().code, ErrorCode::kUnauthorized);
  EXPECT_EQ(outcomes[1].error().suspect, 0);
}

TEST(ConnectTcp, OtherSettingsAreAMismatchOnBothSidesAtOnce) {
  const Deadline start = Clock::now();
  const auto outcomes = connect_all(listen_all(2), [](int rank, MeshOptions& options) {
    options.settings = rank == 0 ? "codec=3lc" : "codec=qsgd";
  });
  EXPECT_LT(Clock::now() - start, 10s);
  for (const int rank : {0, 1}) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::kMismatch);
    EXPECT_EQ(outcome.error().suspect, 1 - rank);
    EXPECT_TRUE(has(outcome.error(), "codec=3lc") && has(outcome.error(), "codec=qsgd"))
        << outcome.error().message;
  }
}

TEST(ConnectTcp, LongSettingsAreComparedWhole) {
  auto outcomes =
      connect_all(listen_all(2), [](int, MeshOptions& options) { options.settings.assign(1024, 'x'); });
  EXPECT_TRUE(outcomes[0].has_value() && outcomes[1].has_value());
  outcomes = connect_all(listen_all(2), [](int rank, MeshOptions& options) {
    options.settings.assign(1024, 'x');
    if (rank == 1) options.settings.back() = 'y';
  });
  EXPECT_EQ(outcomes[0].error().code, ErrorCode::kMismatch);
  EXPECT_EQ(outcomes[1].error().code, ErrorCode::kMismatch);
}

TEST(ConnectTcp, AnotherWorldSizeIsAMismatch) {
  const auto outcomes = connect_all(listen_all(2), [](int rank, MeshOptions& options) {
    if (rank == 1) {
      options.world_size = 3;
      options.endpoints.push_back(options.endpoints[0]);
    }
  });
  for (const auto& outcome : outcomes) {
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::kMismatch);
    EXPECT_TRUE(has(outcome.error(), "world")) << outcome.error().message;
  }
}

TEST(ConnectTcp, TwoProcessesWithOneRankAreAMismatch) {
  Listeners all = listen_all(3);
  const std::vector<Endpoint> endpoints = all.endpoints;
  std::atomic<int> mismatches{0};
  run_ranks(3, [&](int thread) {
    MeshOptions options = mesh_options(thread == 0 ? 0 : 1, endpoints);
    options.connect_timeout = 5s;
    const auto result = connect_tcp(std::move(all.listeners[static_cast<std::size_t>(thread)]), options);
    EXPECT_FALSE(result.has_value());
    if (thread == 0) {
      EXPECT_EQ(result.error().code, ErrorCode::kMismatch) << result.error().message;
      EXPECT_EQ(result.error().suspect, 1);
      ++mismatches;
    }
  });
  EXPECT_EQ(mismatches, 1);
}

TEST(ConnectTcp, SwappedEndpointsAreAMismatch) {
  const auto outcomes = connect_all(listen_all(3), [](int rank, MeshOptions& options) {
    options.connect_timeout = 3s;
    if (rank == 2) std::swap(options.endpoints[0], options.endpoints[1]);
  });
  for (const auto& outcome : outcomes) {
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::kMismatch) << outcome.error().message;
    EXPECT_TRUE(has(outcome.error(), "endpoint")) << outcome.error().message;
  }
}

TEST(ConnectTcp, ARankThatGivesUpTellsAllOthersWhy) {
  // Ranks 0 and 3 disagree. Rank 1 agrees with rank 0, and rank 2 has not even begun.
  const Deadline start = Clock::now();
  std::atomic<int> failed{0};
  Listeners all = listen_all(4);
  run_ranks(4, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    MeshOptions options = mesh_options(rank, all.endpoints);
    options.connect_timeout = 60s;
    options.settings = rank == 3 ? "codec=qsgd" : "codec=3lc";
    if (rank == 2) {
      while (failed == 0 && Clock::now() - start < 1s) std::this_thread::sleep_for(1ms);
    }
    const auto outcome = connect_tcp(std::move(all.listeners[at]), options);
    ++failed;
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::kMismatch) << outcome.error().message;
    EXPECT_NE(outcome.error().suspect, 2) << outcome.error().message;
    EXPECT_NE(outcome.error().suspect, rank) << outcome.error().message;
    EXPECT_TRUE(has(outcome.error(), "codec=3lc") && has(outcome.error(), "codec=qsgd"))
        << outcome.error().message;
  });
  EXPECT_LT(Clock::now() - start, 30s) << "half of the time to connect: they did not wait for it";
}

TEST(ConnectTcp, MissingRanksAreListed) {
  Listeners all = listen_all(4);
  MeshOptions options = mesh_options(2, all.endpoints);
  options.connect_timeout = 300ms;
  all.listeners[0].reset();  // refuses; the others listen but never connect
  const auto result = connect_tcp(std::move(all.listeners[2]), options);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kTimeout);
  for (const char* part : {"rank 0 (127.0.0.1:", "rank 1 (", "rank 3 ("}) {
    EXPECT_TRUE(has(result.error(), part)) << result.error().message;
  }
}

TEST(ConnectTcp, ALateListenerIsStillFound) {
  Listeners all = listen_all(2);
  const std::uint16_t port = all.endpoints[0].port;
  all.listeners[0].reset();
  std::thread rank1([&] {
    const auto result = connect_tcp(std::move(all.listeners[1]), mesh_options(1, all.endpoints));
    EXPECT_TRUE(result.has_value()) << result.error().message;
  });
  std::this_thread::sleep_for(300ms);
  auto listener = listen_tcp("127.0.0.1", port);
  ASSERT_TRUE(listener.has_value()) << listener.error().message;
  const auto result = connect_tcp(std::move(*listener), mesh_options(0, all.endpoints));
  EXPECT_TRUE(result.has_value()) << result.error().message;
  rank1.join();
}

TEST(ConnectTcp, IPv6Loopback) {
  if (!listen_tcp("::1")) GTEST_SKIP() << "SKIPPED: this machine has no IPv6 loopback (::1)";
  const auto outcomes = connect_all(listen_all(3, "::1"), [](int, MeshOptions&) {});
  run_ranks(3, [&](int rank) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    exchange_once(**outcome);
  });
}

TEST(ConnectTcp, ArgumentsAreChecked) {
  const auto refused = [](const std::function<void(MeshOptions&)>& change) {
    Listeners all = listen_all(1);
    MeshOptions options = mesh_options(0, all.endpoints);
    change(options);
    const auto result = connect_tcp(std::move(all.listeners[0]), options);
    return !result && result.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](MeshOptions& o) { o.world_size = 0; }));
  EXPECT_TRUE(refused([](MeshOptions& o) { o.rank = 1; }));
  EXPECT_TRUE(refused([](MeshOptions& o) { o.rank = -1; }));
  EXPECT_TRUE(refused([](MeshOptions& o) { o.world_size = 2; }));
  EXPECT_TRUE(refused([](MeshOptions& o) { o.settings.assign(1025, 'x'); }));
  EXPECT_TRUE(refused([](MeshOptions& o) { o.link.shape = LinkShape{-1, 1}; }));
  EXPECT_TRUE(refused([](MeshOptions& o) {
    o.rank = 1;
    o.world_size = 2;
    o.endpoints = {{"not an address", 1}, {"127.0.0.1", 1}};
  }));
  EXPECT_FALSE(connect_tcp(nullptr, mesh_options(0, {{"127.0.0.1", 1}})).has_value());
}

TEST(ListenTcp, ATakenPortIsNamed) {
  const auto first = listen_tcp("127.0.0.1");
  ASSERT_TRUE(first.has_value());
  const auto second = listen_tcp("127.0.0.1", (*first)->endpoint().port);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kAddressInUse);
  EXPECT_TRUE(has(second.error(), "127.0.0.1:" + std::to_string((*first)->endpoint().port)));
}

TEST(ListenTcp, TakesAddressesNamesAndInterfaces) {
  const auto by_interface = listen_tcp("lo");
  ASSERT_TRUE(by_interface.has_value()) << by_interface.error().message;
  EXPECT_EQ((*by_interface)->endpoint().host, "127.0.0.1");
  EXPECT_NE((*by_interface)->endpoint().port, 0);
  EXPECT_TRUE(listen_tcp("localhost").has_value());
  EXPECT_EQ(listen_tcp("").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(listen_tcp("no-such-interface0").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(listen_tcp("192.0.2.1").error().code, ErrorCode::kInvalidArgument);  // a documentation address
}

TEST(ListenTcp, LocalAddressTowardsLoopbackIsLoopback) {
  EXPECT_EQ(local_address_towards("127.0.0.1").value(), "127.0.0.1");
  EXPECT_FALSE(local_address_towards("").has_value());
}

}  // namespace
}  // namespace deltawire::test
