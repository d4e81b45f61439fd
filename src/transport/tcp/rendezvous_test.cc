// Meshes whose ranks only know rank 0's address.
#include <functional>
#include <optional>

#include "base/refusal_testing.h"
#include "transport/mesh_testing.h"
#include "transport/tcp/address_book.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/relay_testing.h"

namespace deltawire::test::rendezvous_test {
namespace {

// Both streams (control, data) of a rank that knows the token, after the handshakes and nothing else.
std::vector<Stranger> come_by_hand(int rank, int world_size, const Endpoint& rendezvous) {
  std::vector<Stranger> streams;
  for (const auto stream : {Claims::Stream::kControl, Claims::Stream::kData}) {
    Claims claims = claims_of(rank, 0, world_size);
    claims.stream = stream;
    Handshake handshake(token_of(7), claims, *random_nonce());
    complete(handshake, streams.emplace_back(rendezvous).fd());
  }
  return streams;
}

// One process of a job: its rank, and its other settings.
struct Process {
  int rank = 0;
  int world_size = 1;
  std::string settings;
  std::chrono::milliseconds timeout = 30s;
  std::chrono::milliseconds comes_after{0};
};

MeshOptions options_of(const Process& process, const Endpoint& rendezvous) {
  MeshOptions options;
  options.rank = process.rank;
  options.world_size = process.world_size;
  options.rendezvous = rendezvous;
  options.settings = process.settings;
  options.token = token_of(7);
  options.connect_timeout = process.timeout;
  return options;
}

// Connects each process on its own thread; the first is rank 0 and listens at the rendezvous.
std::vector<Outcome> meet(const std::vector<Process>& processes, const std::string& host = "127.0.0.1") {
  auto first = listen_tcp(host);
  EXPECT_TRUE(first.has_value()) << first.error().message;
  const Endpoint rendezvous = (*first)->endpoint();
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < processes.size(); ++i) outcomes.emplace_back(fail(ErrorCode::kState, ""));
  run_ranks(static_cast<int>(processes.size()), [&](int number) {
    const auto at = static_cast<std::size_t>(number);
    std::this_thread::sleep_for(processes[at].comes_after);
    const MeshOptions options = options_of(processes[at], rendezvous);
    auto listener = number == 0 ? std::move(first) : listen_tcp(host);
    ASSERT_TRUE(listener.has_value()) << listener.error().message;
    outcomes[at] = connect_tcp(*std::move(listener), options);
    // An abrupt end would be an error on those that still connect.
    if (outcomes[at]) exchange_once(**outcomes[at]);
  });
  return outcomes;
}

std::vector<Process> job(int world_size) {
  std::vector<Process> processes;
  for (int rank = 0; rank < world_size; ++rank) {
    processes.push_back({.rank = rank, .world_size = world_size, .settings = {}});
  }
  return processes;
}

TEST(Rendezvous, RanksFindEachOther) {
  for (const int world : {1, 2, 3, 7}) {
    for (const Outcome& outcome : meet(job(world))) {
      EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
    }
  }
}

TEST(Rendezvous, OverIPv6) {
  if (!listen_tcp("::1")) GTEST_SKIP() << "no IPv6 here";
  for (const Outcome& outcome : meet(job(3), "::1")) {
    EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
  }
}

TEST(Rendezvous, AnyRankMayBeTheLast) {
  for (std::size_t last = 0; last < 3; ++last) {
    auto processes = job(3);
    processes[last].comes_after = 300ms;
    for (const Outcome& outcome : meet(processes)) {
      EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
    }
  }
}

TEST(Rendezvous, AHostMayBeAName) {
  auto listener = listen_tcp("127.0.0.1");
  ASSERT_TRUE(listener.has_value());
  const Endpoint named{"localhost", (*listener)->endpoint().port};
  run_ranks(2, [&](int rank) {
    auto own = rank == 0 ? std::move(*listener) : *listen_tcp("127.0.0.1");
    const auto outcome =
        connect_tcp(std::move(own), options_of({.rank = rank, .world_size = 2, .settings = {}}, named));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    exchange_once(**outcome);
  });
}

TEST(Rendezvous, AMissingRank0IsNamed) {
  Endpoint empty;
  {
    auto listener = listen_tcp("127.0.0.1");
    empty = (*listener)->endpoint();
  }
  const Process late{.rank = 2, .world_size = 3, .settings = {}, .timeout = 2000ms};
  testing::expect_refused(connect_tcp(*listen_tcp("127.0.0.1"), options_of(late, empty)), ErrorCode::kTimeout,
                          0, {"rank 2 found nobody in 2000 ms at 127.0.0.1:" + std::to_string(empty.port)});
}

TEST(Rendezvous, WhoDoesNotComeIsNamedByAll) {
  auto processes = job(4);
  processes.erase(processes.begin() + 2);
  for (Process& process : processes) process.timeout = process.rank == 0 ? 6s : 60s;
  const Deadline start = Clock::now();
  const auto outcomes = meet(processes);
  EXPECT_LT(Clock::now() - start, 45s) << "rank 0 tells the others";
  for (const Outcome& outcome : outcomes) {
    testing::expect_refused(outcome, ErrorCode::kTimeout, 2,
                            {"with rank 2; are they started, with the rendezvous at 127.0.0.1:"});
  }
}

TEST(Rendezvous, TwoProcessesOfOneRankAreNamedByAll) {
  auto processes = job(3);
  processes[2].rank = 1;
  const Deadline start = Clock::now();
  const auto outcomes = meet(processes);
  EXPECT_LT(Clock::now() - start, 25s);
  for (const Outcome& outcome : outcomes) {
    testing::expect_refused(outcome, ErrorCode::kMismatch, "two processes call themselves rank 1");
  }
}

TEST(Rendezvous, OtherSettingsAndWorldsAreNamedByAll) {
  for (const bool world : {true, false}) {
    auto processes = job(3);
    if (world) {
      processes[2].world_size = 4;
    } else {
      processes[2].settings = "lr=1";
    }
    for (const Outcome& outcome : meet(processes)) {
      testing::expect_refused(outcome, ErrorCode::kMismatch, world ? "a world of" : "lr=1");
    }
  }
}

TEST(Rendezvous, AListenerOnAllAddressesCanNotBeAnnounced) {
  const Process member{.rank = 1, .world_size = 2, .settings = {}};
  testing::expect_refused(connect_tcp(*listen_tcp("0.0.0.0"), options_of(member, {"127.0.0.1", 9})),
                          ErrorCode::kInvalidArgument, "0.0.0.0");
}

TEST(Rendezvous, IsRefusedTogetherWithEndpoints) {
  MeshOptions options = mesh_options(0, {{"127.0.0.1", 1}, {"127.0.0.1", 2}});
  options.rendezvous = Endpoint{"127.0.0.1", 1};
  testing::expect_refused(connect_tcp(*listen_tcp("127.0.0.1"), options), ErrorCode::kInvalidArgument);
}

// Rank 0 gives up because of rank 1, whose streams, which `come` returns, are open as long.
void expect_failure(int world_size, std::chrono::milliseconds timeout, ErrorCode code,
                    const std::string& words,
                    const std::function<std::vector<Stranger>(const Endpoint&)>& come) {
  auto listener = listen_tcp("127.0.0.1");
  const Endpoint rendezvous = (*listener)->endpoint();
  std::thread host([&] {
    const Process first{.rank = 0, .world_size = world_size, .settings = {}, .timeout = timeout};
    testing::expect_refused(connect_tcp(std::move(*listener), options_of(first, rendezvous)), code, 1,
                            {words});
  });
  const std::vector<Stranger> streams = come(rendezvous);
  host.join();
}

TEST(Rendezvous, InvalidAddressesAreCorruptAndNameTheRank) {
  // Rank 1 knows the token and was started with endpoints: the mesh's bytes follow its handshake.
  expect_failure(3, 30s, ErrorCode::kCorrupt, "rank 1", [](const Endpoint& rendezvous) {
    std::thread second([&] {
      const auto outcome = connect_tcp(*listen_tcp("127.0.0.1"), options_of(job(3)[2], rendezvous));
      ASSERT_FALSE(outcome.has_value());
      EXPECT_TRUE(has(outcome.error(), "rank 1")) << outcome.error().message;
    });
    auto streams = come_by_hand(1, 3, rendezvous);
    streams[1].say(pattern(kAddressBytes, 3));
    second.join();
    return streams;
  });
}

TEST(Rendezvous, NobodyLeavesBeforeAllHaveMetAll) {
  // Rank 1 has told rank 0 where it listens, and then takes longer to connect than rank 0 waits.
  const char* const words = "rank 0 is connected to all ranks, but rank 1 was not after 3000 ms";
  expect_failure(2, 3s, ErrorCode::kTimeout, words, [](const Endpoint& rendezvous) {
    auto streams = come_by_hand(1, 2, rendezvous);
    streams[1].say(*encode_address({"127.0.0.1", 9}));
    return streams;
  });
}

TEST(Rendezvous, WhoComesAndDoesNotSayWhereItListensIsNamed) {
  expect_failure(2, 6s, ErrorCode::kTimeout, "rank 1 did not tell rank 0 in",
                 [](const Endpoint& rendezvous) { return come_by_hand(1, 2, rendezvous); });
}

TEST(Rendezvous, ARankThatDiesAndIsNotStartedAgainIsNamed) {
  const char* const words = "rank 1 left while rank 0 was still connecting";
  expect_failure(3, 3s, ErrorCode::kPeerLost, words, [](const Endpoint& rendezvous) {
    come_by_hand(1, 3, rendezvous);
    return std::vector<Stranger>();
  });
}

// Longer than a rank that hung up may stay away once ranks can't be started again.
constexpr auto kRestartTime = 2500ms;

TEST(Rendezvous, ARankThatDiesWhileOthersWaitMayBeStartedAgain) {
  auto listener = listen_tcp("127.0.0.1");
  const Endpoint rendezvous = (*listener)->endpoint();
  std::vector<Process> processes = job(3);
  std::thread host([&] {
    const auto outcome = connect_tcp(std::move(*listener), options_of(processes[0], rendezvous));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    exchange_once(**outcome);
  });
  for (int death = 0; death < 2; ++death) {
    const auto streams = come_by_hand(1, 3, rendezvous);
    if (death == 1) streams[1].say(*encode_address({"127.0.0.1", 9}));
  }
  std::this_thread::sleep_for(kRestartTime);
  run_ranks(2, [&](int other) {
    const auto outcome = connect_tcp(*listen_tcp("127.0.0.1"),
                                     options_of(processes[1 + static_cast<std::size_t>(other)], rendezvous));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    exchange_once(**outcome);
  });
  host.join();
}

// Answers one stream of rank 1, as rank 0 does.
void answer_by_hand(const Stranger& dialer) {
  Claims claims;
  claims.role = Claims::Role::kListener;
  claims.world_size = 2;
  Handshake handshake(token_of(7), claims, *random_nonce());
  complete(handshake, dialer.fd());
}

TEST(Rendezvous, Rank0MayDieAndBeStartedAgainWhileOthersWait) {
  std::optional<Impostor> first(std::in_place);
  const Endpoint rendezvous = first->endpoint;
  const std::vector<Process> processes = job(2);
  std::thread member([&] {
    const auto outcome = connect_tcp(*listen_tcp("127.0.0.1"), options_of(processes[1], rendezvous));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    exchange_once(**outcome);
  });
  {
    std::vector<Stranger> streams;
    for (int stream = 0; stream < 2; ++stream) answer_by_hand(streams.emplace_back(first->fd));
    first.reset();
  }
  std::this_thread::sleep_for(kRestartTime);
  auto listener = listen_tcp("127.0.0.1", rendezvous.port);
  EXPECT_TRUE(listener.has_value()) << listener.error().message;
  const auto outcome = connect_tcp(std::move(*listener), options_of(processes[0], rendezvous));
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
  if (outcome) exchange_once(**outcome);
  member.join();
}

}  // namespace
}  // namespace deltawire::test::rendezvous_test
