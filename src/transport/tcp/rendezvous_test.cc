// Meshes whose ranks only know rank 0's address.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/mesh_testing.h"
#include "transport/tcp/address_book.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/handshake_testing.h"

namespace deltawire::test::rendezvous_test {
namespace {

int dial(const Endpoint& endpoint) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  ::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

// Both streams (control, data) of a rank that knows the token, after the handshakes and nothing else.
std::array<int, 2> come_by_hand(int rank, int world_size, const Endpoint& rendezvous) {
  std::array<int, 2> streams{};
  for (const auto stream : {Claims::Stream::kControl, Claims::Stream::kData}) {
    Claims claims;
    claims.rank = static_cast<std::uint32_t>(rank);
    claims.world_size = static_cast<std::uint16_t>(world_size);
    claims.stream = stream;
    Handshake handshake(token_of(7), claims, *random_nonce());
    const int fd = dial(rendezvous);
    streams[stream == Claims::Stream::kData ? 1 : 0] = fd;
    Exchange state = Exchange::kMore;
    const Deadline end = soon();
    while (state == Exchange::kMore && Clock::now() < end) state = advance_handshake(handshake, fd);
    EXPECT_EQ(state, Exchange::kDone);
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
  const auto outcome = connect_tcp(*listen_tcp("127.0.0.1"), options_of(late, empty));
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(outcome.error().suspect, 0);
  EXPECT_TRUE(
      has(outcome.error(), "rank 2 found nobody in 2000 ms at 127.0.0.1:" + std::to_string(empty.port)))
      << outcome.error().message;
}

TEST(Rendezvous, WhoDoesNotComeIsNamedByAll) {
  auto processes = job(4);
  processes.erase(processes.begin() + 2);
  for (Process& process : processes) process.timeout = process.rank == 0 ? 6s : 60s;
  const Deadline start = Clock::now();
  const auto outcomes = meet(processes);
  EXPECT_LT(Clock::now() - start, 45s) << "rank 0 tells the others";
  for (const Outcome& outcome : outcomes) {
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::kTimeout);
    EXPECT_EQ(outcome.error().suspect, 2);
    EXPECT_TRUE(has(outcome.error(), "with rank 2; are they started, with the rendezvous at 127.0.0.1:"))
        << outcome.error().message;
  }
}

TEST(Rendezvous, TwoProcessesOfOneRankAreNamedByAll) {
  auto processes = job(3);
  processes[2].rank = 1;
  const Deadline start = Clock::now();
  const auto outcomes = meet(processes);
  EXPECT_LT(Clock::now() - start, 25s);
  for (const Outcome& outcome : outcomes) {
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::kMismatch) << outcome.error().message;
    EXPECT_TRUE(has(outcome.error(), "two processes call themselves rank 1")) << outcome.error().message;
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
      ASSERT_FALSE(outcome.has_value());
      EXPECT_EQ(outcome.error().code, ErrorCode::kMismatch) << outcome.error().message;
      EXPECT_TRUE(has(outcome.error(), world ? "a world of" : "lr=1")) << outcome.error().message;
    }
  }
}

TEST(Rendezvous, AListenerOnAllAddressesCanNotBeAnnounced) {
  const Process member{.rank = 1, .world_size = 2, .settings = {}};
  const auto outcome = connect_tcp(*listen_tcp("0.0.0.0"), options_of(member, {"127.0.0.1", 9}));
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(has(outcome.error(), "0.0.0.0")) << outcome.error().message;
}

TEST(Rendezvous, IsRefusedTogetherWithEndpoints) {
  MeshOptions options = mesh_options(0, {{"127.0.0.1", 1}, {"127.0.0.1", 2}});
  options.rendezvous = Endpoint{"127.0.0.1", 1};
  const auto outcome = connect_tcp(*listen_tcp("127.0.0.1"), options);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidArgument);
}

TEST(Rendezvous, InvalidAddressesAreCorruptAndNameTheRank) {
  // Rank 1 knows the token and was started with endpoints: the mesh's bytes follow its handshake.
  auto listener = listen_tcp("127.0.0.1");
  const Endpoint rendezvous = (*listener)->endpoint();
  std::thread host([&] {
    const auto outcome = connect_tcp(std::move(*listener),
                                     options_of({.rank = 0, .world_size = 3, .settings = {}}, rendezvous));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::kCorrupt) << outcome.error().message;
    EXPECT_EQ(outcome.error().suspect, 1);
  });
  std::vector<Process> others = job(3);
  std::thread second([&] {
    const auto outcome = connect_tcp(*listen_tcp("127.0.0.1"), options_of(others[2], rendezvous));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_TRUE(has(outcome.error(), "rank 1")) << outcome.error().message;
  });
  const auto bytes = pattern(kAddressBytes, 3);
  const std::array<int, 2> streams = come_by_hand(1, 3, rendezvous);
  EXPECT_EQ(::send(streams[1], bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  host.join();
  second.join();
  for (const int fd : streams) ::close(fd);
}

TEST(Rendezvous, NobodyLeavesBeforeAllHaveMetAll) {
  // Rank 1 has told rank 0 where it listens, and then takes longer to connect than rank 0 waits.
  auto listener = listen_tcp("127.0.0.1");
  const Endpoint rendezvous = (*listener)->endpoint();
  std::thread host([&] {
    const Process first{.rank = 0, .world_size = 2, .settings = {}, .timeout = 3s};
    const auto outcome = connect_tcp(std::move(*listener), options_of(first, rendezvous));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::kTimeout);
    EXPECT_EQ(outcome.error().suspect, 1);
    EXPECT_TRUE(has(outcome.error(), "rank 0 is connected to all ranks, but rank 1 was not after 3000 ms"))
        << outcome.error().message;
  });
  const std::array<int, 2> streams = come_by_hand(1, 2, rendezvous);
  const AddressSlot own = *encode_address({"127.0.0.1", 9});
  EXPECT_EQ(::send(streams[1], own.data(), own.size(), MSG_NOSIGNAL), static_cast<ssize_t>(own.size()));
  host.join();
  for (const int fd : streams) ::close(fd);
}

TEST(Rendezvous, WhoComesAndDoesNotSayWhereItListensIsNamed) {
  auto listener = listen_tcp("127.0.0.1");
  const Endpoint rendezvous = (*listener)->endpoint();
  std::thread host([&] {
    const Process first{.rank = 0, .world_size = 2, .settings = {}, .timeout = 6s};
    const auto outcome = connect_tcp(std::move(*listener), options_of(first, rendezvous));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::kTimeout);
    EXPECT_EQ(outcome.error().suspect, 1);
    EXPECT_TRUE(has(outcome.error(), "rank 1 did not tell rank 0 in")) << outcome.error().message;
  });
  const std::array<int, 2> streams = come_by_hand(1, 2, rendezvous);
  host.join();
  for (const int fd : streams) ::close(fd);
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
    const std::array<int, 2> streams = come_by_hand(1, 3, rendezvous);
    if (death == 1) {
      const AddressSlot old = *encode_address({"127.0.0.1", 9});
      EXPECT_EQ(::send(streams[1], old.data(), old.size(), MSG_NOSIGNAL), static_cast<ssize_t>(old.size()));
    }
    for (const int fd : streams) ::close(fd);
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
int answer_by_hand(int listening_fd) {
  const int fd = ::accept(listening_fd, nullptr, nullptr);
  EXPECT_GE(fd, 0);
  Claims claims;
  claims.role = Claims::Role::kListener;
  claims.world_size = 2;
  Handshake handshake(token_of(7), claims, *random_nonce());
  Exchange state = Exchange::kMore;
  const Deadline end = soon();
  while (state == Exchange::kMore && Clock::now() < end) state = advance_handshake(handshake, fd);
  EXPECT_EQ(state, Exchange::kDone);
  return fd;
}

TEST(Rendezvous, Rank0MayDieAndBeStartedAgainWhileOthersWait) {
  const int first = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;  // a rank shall listen here afterwards
  (void)::setsockopt(first, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(first, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(first, 10), 0);
  socklen_t length = sizeof address;
  ::getsockname(first, reinterpret_cast<sockaddr*>(&address), &length);
  const Endpoint rendezvous{"127.0.0.1", ntohs(address.sin_port)};
  const std::vector<Process> processes = job(2);
  std::thread member([&] {
    const auto outcome = connect_tcp(*listen_tcp("127.0.0.1"), options_of(processes[1], rendezvous));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    exchange_once(**outcome);
  });
  const std::array<int, 3> dying{answer_by_hand(first), answer_by_hand(first), first};
  for (const int fd : dying) ::close(fd);
  std::this_thread::sleep_for(kRestartTime);
  auto listener = listen_tcp("127.0.0.1", rendezvous.port);
  EXPECT_TRUE(listener.has_value()) << listener.error().message;
  const auto outcome = connect_tcp(std::move(*listener), options_of(processes[0], rendezvous));
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
  if (outcome) exchange_once(**outcome);
  member.join();
}

TEST(Rendezvous, ARankThatDiesAndIsNotStartedAgainIsNamed) {
  auto listener = listen_tcp("127.0.0.1");
  const Endpoint rendezvous = (*listener)->endpoint();
  std::thread host([&] {
    const Process first{.rank = 0, .world_size = 3, .settings = {}, .timeout = 3s};
    const auto outcome = connect_tcp(std::move(*listener), options_of(first, rendezvous));
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code, ErrorCode::kPeerLost) << outcome.error().message;
    EXPECT_EQ(outcome.error().suspect, 1);
    EXPECT_TRUE(has(outcome.error(), "rank 1 left while rank 0 was still connecting"))
        << outcome.error().message;
  });
  for (const int fd : come_by_hand(1, 3, rendezvous)) ::close(fd);
  host.join();
}

}  // namespace
}  // namespace deltawire::test::rendezvous_test
