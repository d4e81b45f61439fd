// How TCP meshes come together, and who is kept out.
#include <atomic>

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
  Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Stranger() {
    if (fd_ >= 0) ::close(fd_);
  }
  void say(const std::vector<std::byte>& bytes) const {
    (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  bool was_hung_up_on() const {
    char byte = 0;
    return ::recv(fd_, &byte, 1, 0) <= 0;
  }

 private:
  int fd_;
};

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
  for (int i = 0; i < 100; ++i) {
    for (const Endpoint& endpoint : all.endpoints) strangers.emplace_back(endpoint);  // silent
    strangers.back().say(std::vector<std::byte>(static_cast<std::size_t>(i % 32)));   // half a token
  }
  Hello hello;
  hello.rank = 1;
  hello.world_size = 3;
  const std::vector<std::byte> garbage = pattern(1000000, 4);
  for (const Endpoint& endpoint : all.endpoints) {
    strangers.emplace_back(endpoint).say(encode_hello(token_of(8), hello));
    strangers.emplace_back(endpoint).say(garbage);
    std::vector<std::byte> nonsense = garbage;  // behind the right token
    std::fill_n(nonsense.begin(), 32, std::byte{7});
    strangers.emplace_back(endpoint).say(nonsense);
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
  for (const Stranger& stranger : strangers) EXPECT_TRUE(stranger.was_hung_up_on());
}

TEST(ConnectTcp, AStrangerLearnsNothing) {
  Listeners all = listen_all(2);
  const Stranger stranger(all.endpoints[0]);
  Hello hello;
  hello.rank = 1;
  hello.world_size = 2;
  stranger.say(encode_hello(token_of(8), hello));
  std::thread rank0([&] {
    MeshOptions options = mesh_options(0, all.endpoints);
    options.connect_timeout = 2s;
    const auto result = connect_tcp(std::move(all.listeners[0]), options);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kTimeout);
    EXPECT_EQ(result.error().suspect, 1);
    EXPECT_TRUE(has(result.error(), "rank 1")) << result.error().message;
  });
  EXPECT_TRUE(stranger.was_hung_up_on());  // without a byte of answer
  rank0.join();
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
  ASSERT_FALSE(outcomes[2].has_value());
  EXPECT_EQ(outcomes[2].error().code, ErrorCode::kMismatch) << outcomes[2].error().message;
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
