// Doors and lines: messages in any pieces, those who don't know the token, and ends of lines.
#include "deltawire/door.h"

#include <array>
#include <atomic>
#include <future>
#include <thread>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/refusal_testing.h"
#include "transport/mesh_testing.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/relay_testing.h"

namespace deltawire::test::door_test {
namespace {

DoorOptions options_of(Encryption encryption = Encryption::kAuto) {
  return {.token = token_of(static_cast<unsigned char>(7)), .encryption = encryption};
}

std::unique_ptr<Door> door_of(const DoorOptions& options = options_of()) {
  auto door = open_door(std::move(*listen_tcp("127.0.0.1")), options);
  EXPECT_TRUE(door) << door.error().message;
  return std::move(*door);
}

struct Ends {
  Result<std::unique_ptr<Line>> caller = fail(ErrorCode::kState, "");
  Result<std::unique_ptr<Line>> host = fail(ErrorCode::kState, "");
};

// Calls at `at`, behind which is the door.
Ends connected(Door& door, const Endpoint& at, const DoorOptions& options = options_of(),
               std::chrono::milliseconds time = 5s) {
  Ends ends;
  auto call = std::async(std::launch::async, [&] { return call_at_door(at, options, Clock::now() + time); });
  ends.host = door.answer(Clock::now() + time);
  ends.caller = call.get();
  return ends;
}

std::vector<std::byte> pattern(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

TEST(Door, CarriesMessagesBothWays) {
  for (const Encryption encryption : {Encryption::kAuto, Encryption::kRequired, Encryption::kOff}) {
    const DoorOptions options = options_of(encryption);
    const auto door = door_of(options);
    Ends ends = connected(*door, door->endpoint(), options);
    ASSERT_TRUE(ends.caller) << ends.caller.error().message;
    ASSERT_TRUE(ends.host) << ends.host.error().message;
    for (const std::size_t count : {0UL, 1UL, 70'000UL, 5'000'000UL}) {
      const auto sent = pattern(count);
      auto sending = std::async(std::launch::async, [&] { return (*ends.caller)->send(sent, soon()); });
      const auto got = (*ends.host)->receive(kMessageBytesMax, soon());
      ASSERT_TRUE(sending.get());
      ASSERT_TRUE(got) << got.error().message;
      EXPECT_TRUE(*got == sent) << count;
    }
    ASSERT_TRUE((*ends.host)->send(pattern(10), soon()));
    EXPECT_TRUE(*(*ends.caller)->receive(10, soon()) == pattern(10));
  }
}

TEST(Door, AMessageThatIsLateIsContinued) {
  const auto door = door_of();
  const Ends ends = connected(*door, door->endpoint());
  testing::expect_refused((*ends.host)->receive(100, Clock::now() + 20ms), ErrorCode::kTimeout);
  ASSERT_TRUE((*ends.caller)->send(pattern(100), soon()));
  EXPECT_TRUE(*(*ends.host)->receive(100, soon()) == pattern(100));
}

TEST(Door, AMessageThatIsTooLongIsRefused) {
  const auto door = door_of();
  const Ends ends = connected(*door, door->endpoint());
  ASSERT_TRUE((*ends.caller)->send(pattern(101), soon()));
  testing::expect_refused((*ends.host)->receive(100, soon()), ErrorCode::kLimit);
}

TEST(Door, TheEndOfALineIsNoticed) {
  const auto door = door_of();
  Ends ends = connected(*door, door->endpoint());
  ends.caller->reset();
  testing::expect_refused((*ends.host)->receive(100, soon()), ErrorCode::kPeerLost);
}

TEST(Door, ALineCountsWhatArrivesAndNamesTheOtherEnd) {
  const auto door = door_of();
  const Ends ends = connected(*door, door->endpoint());
  EXPECT_EQ((*ends.host)->peer().host, "127.0.0.1");
  EXPECT_EQ((*ends.caller)->peer().host, "127.0.0.1");
  ASSERT_TRUE((*ends.caller)->send(pattern(100), soon()));
  ASSERT_TRUE((*ends.caller)->send(pattern(20), soon()));
  ASSERT_TRUE((*ends.host)->receive(100, soon()));
  EXPECT_EQ((*ends.host)->bytes_received(), 100u);
  ASSERT_TRUE((*ends.host)->receive(100, soon()));
  EXPECT_EQ((*ends.host)->bytes_received(), 120u);
}

TEST(Door, AnotherThreadCanHangUp) {
  const auto door = door_of();
  const Ends ends = connected(*door, door->endpoint());
  auto waits = std::async(std::launch::async, [&] { return (*ends.host)->receive(100, Clock::now() + 60s); });
  (*ends.host)->hang_up();
  ASSERT_EQ(waits.wait_for(30s), std::future_status::ready);
  EXPECT_EQ(waits.get().error().code, ErrorCode::kPeerLost);
  EXPECT_EQ((*ends.caller)->receive(100, soon()).error().code, ErrorCode::kPeerLost);
}

TEST(Door, WhoCallsWhereNobodyListensLearnsItAtOnce) {
  const Endpoint at = door_of()->endpoint();  // and closed
  const Deadline begun = Clock::now();
  testing::expect_refused(call_at_door(at, options_of(), begun + 30s), ErrorCode::kPeerLost);
  EXPECT_LT(Clock::now() - begun, 10s);
}

TEST(Door, AnotherTokenIsTurnedAway) {
  for (const Encryption encryption : {Encryption::kOff, Encryption::kRequired}) {
    const auto door = door_of(options_of(encryption));
    DoorOptions other = options_of(encryption);
    other.token[3] ^= std::byte{1};
    const Ends ends = connected(*door, door->endpoint(), other, 500ms);
    testing::expect_refused(ends.caller, ErrorCode::kUnauthorized);
    EXPECT_FALSE(ends.host);
  }
}

// The key of doors is not that of meshes: who dials the wrong port disturbs nobody.
TEST(Door, IsAStrangerToMeshes) {
  Listeners all = listen_all(2);
  const Endpoint first = all.endpoints[0];
  auto caller =
      std::async(std::launch::async, [&] { return call_at_door(first, options_of(), Clock::now() + 2s); });
  std::vector<Result<std::unique_ptr<Transport>>> outcomes;
  for (int rank = 0; rank < 2; ++rank) outcomes.emplace_back(fail(ErrorCode::kState, ""));
  run_ranks(2, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(300ms);  // the caller comes first
    const auto at = static_cast<std::size_t>(rank);
    outcomes[at] = connect_tcp(std::move(all.listeners[at]), mesh_options(rank, all.endpoints));
  });
  EXPECT_TRUE(outcomes[0]) << outcomes[0].error().message;
  EXPECT_TRUE(outcomes[1]);
  EXPECT_FALSE(caller.get());
}

TEST(Door, StrangersKeepNobodyWaiting) {
  const auto door = door_of();
  std::vector<int> silent;
  for (int i = 0; i < 100; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(door->endpoint().port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    if (i % 2 == 0) (void)!::write(fd, "GET / HTTP/1.1\r\n", 16);
    silent.push_back(fd);
  }
  const Ends ends = connected(*door, door->endpoint());
  EXPECT_TRUE(ends.caller) << ends.caller.error().message;
  EXPECT_TRUE(ends.host);
  for (const int fd : silent) ::close(fd);
}

// A door that says that it has no place left has not refused the token: the caller calls again until its time
// is over.
TEST(Door, WhoIsPushedOutCallsAgain) {
  auto listener = listen_tcp("127.0.0.1");
  ASSERT_TRUE(listener);
  std::atomic<bool> stops = false;
  std::atomic<int> calls = 0;
  std::thread busy([&] {
    const auto& tcp = static_cast<const TcpListener&>(**listener);
    while (!stops) {
      const GuardedFd caller = tcp.accept();
      std::array<std::byte, 200> bytes{};
      std::vector<pollfd> polls{{caller.get(), POLLIN, 0}};
      if (!caller || ::poll(polls.data(), 1, 1000) != 1) {
        std::this_thread::sleep_for(5ms);
        continue;
      }
      (void)!::recv(caller.get(), bytes.data(), bytes.size(), 0);
      (void)!::send(caller.get(), bytes.data(), 32, MSG_NOSIGNAL);
      (void)!::poll(polls.data(), 1, 1000);
      (void)!::recv(caller.get(), bytes.data(), bytes.size(), 0);
      bytes.fill(std::byte{0});
      constexpr std::string_view kBusy = "DWBS";
      std::ranges::copy(std::as_bytes(std::span(kBusy)), bytes.begin());
      (void)!::send(caller.get(), bytes.data(), 92, MSG_NOSIGNAL);
      ++calls;
    }
  });
  const auto line = call_at_door((*listener)->endpoint(), options_of(Encryption::kOff), Clock::now() + 3s);
  stops = true;
  busy.join();
  testing::expect_refused(line, ErrorCode::kTimeout, "too many strangers");
  EXPECT_GT(calls, 3);
}

// The name may be made later.
TEST(Door, ANameWithoutAnAddressIsLikeAPlaceWhereNobodyListens) {
  testing::expect_refused(call_at_door({"door.invalid", 29600}, options_of(), Clock::now() + 60s),
                          ErrorCode::kPeerLost, "\"door.invalid\"");
}

// Whoever is on the way can neither read nor change what an encrypted line carries.
TEST(Door, AChangedByteEndsAnEncryptedLine) {
  const DoorOptions options = options_of(Encryption::kRequired);
  const auto door = door_of(options);
  std::atomic<bool> meddles = false;
  Relay relay(door->endpoint(), [&](int, bool, std::vector<std::byte>& bytes, std::vector<std::byte>&) {
    if (meddles && !bytes.empty()) bytes[bytes.size() / 2] ^= std::byte{1};
    return true;
  });
  Ends ends = connected(*door, relay.endpoint(), options);
  ASSERT_TRUE(ends.caller) << ends.caller.error().message;
  ASSERT_TRUE(ends.host);
  meddles = true;
  (void)(*ends.caller)->send(pattern(1000), soon());
  testing::expect_refused((*ends.host)->receive(1000, soon()), ErrorCode::kPeerLost);
}

}  // namespace
}  // namespace deltawire::test::door_test
