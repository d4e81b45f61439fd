// Unit tests of AddressBook: addresses as ranks send them, and ranks that connect again.
#include "transport/tcp/address_book.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include "base/refusal_testing.h"
#include "transport/tcp/address.h"

namespace deltawire::address_book_test {
namespace {

TEST(AddressSlot, IsReadAsItWasWritten) {
  for (const Endpoint& endpoint : {Endpoint{"10.0.0.1", 1}, Endpoint{"::1", 65535},
                                   Endpoint{"fd00:1234:5678:9abc:def0:1234:5678:9abc", 7171}}) {
    const auto slot = encode_address(endpoint);
    ASSERT_TRUE(slot.has_value()) << slot.error().message;
    const auto again = decode_address(*slot);
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_EQ(again->host, endpoint.host);
    EXPECT_EQ(again->port, endpoint.port);
  }
}

TEST(AddressSlot, NothingElseIsRead) {
  const AddressSlot good = *encode_address({"10.0.0.1", 7171});
  const auto refused = [&](std::size_t at, int value) {
    AddressSlot slot = good;
    slot[at] = static_cast<std::byte>(value);
    const auto outcome = decode_address(slot);
    return !outcome && outcome.error().code == ErrorCode::kCorrupt;
  };
  EXPECT_TRUE(refused(2, 0));
  EXPECT_TRUE(refused(2, 7)) << "a digit behind the host";
  EXPECT_TRUE(refused(2, 9)) << "a zero within the host";
  EXPECT_TRUE(refused(2, 255));
  EXPECT_TRUE(refused(3, 'x'));
  EXPECT_TRUE(refused(63, 1));
  AddressSlot portless = good;
  portless[0] = portless[1] = std::byte{0};
  EXPECT_FALSE(decode_address(portless).has_value());
  EXPECT_FALSE(encode_address({"localhost", 1}).has_value());
  EXPECT_FALSE(encode_address({"::", 1}).has_value());
}

// Rank 0's side of two ranks' data streams, and the ranks' ends.
struct Host {
  std::vector<PeerSockets> sockets = std::vector<PeerSockets>(3);
  std::vector<std::uint32_t> streams = std::vector<std::uint32_t>(3);
  std::array<GuardedFd, 3> others;
  AddressBook book{0, 3, AddressSlot{}};

  void come(std::size_t rank) {
    auto ends = GuardedFd::open_socket_pair();
    sockets[rank].data = std::move(ends[0]);
    others[rank] = std::move(ends[1]);
    ++streams[rank];
  }
  Status say(std::size_t rank, const Endpoint& endpoint) {
    const AddressSlot slot = *encode_address(endpoint);
    EXPECT_EQ(::send(others[rank].get(), slot.data(), slot.size(), 0), static_cast<ssize_t>(slot.size()));
    return book.advance(sockets, streams);
  }
  std::size_t heard_by(std::size_t rank) const {
    std::array<std::byte, 1000> bytes;
    return static_cast<std::size_t>(
        std::max<ssize_t>(0, ::recv(others[rank].get(), bytes.data(), bytes.size(), MSG_DONTWAIT)));
  }
};

TEST(AddressBook, WhoComesAgainSaysAndHearsItAgain) {
  Host host;
  host.come(1);
  host.come(2);
  ASSERT_TRUE(host.say(1, {"10.0.0.1", 1}));
  // Rank 1 dies, and is started again elsewhere: the others don't know its address yet.
  host.come(1);
  ASSERT_TRUE(host.say(2, {"10.0.0.2", 2}));
  EXPECT_FALSE(host.book.is_out());
  ASSERT_TRUE(host.say(1, {"10.0.0.3", 3}));
  EXPECT_TRUE(host.book.is_out() && host.book.is_complete());
  EXPECT_EQ(host.book.endpoints()[1].host, "10.0.0.3");
  for (const std::size_t rank : {1u, 2u}) EXPECT_EQ(host.heard_by(rank), 3 * kAddressBytes);
  // Rank 2's connection broke.
  host.come(2);
  ASSERT_TRUE(host.book.advance(host.sockets, host.streams));
  EXPECT_FALSE(host.book.is_complete());
  EXPECT_EQ(host.book.silent_rank(), 2);
  ASSERT_TRUE(host.say(2, {"10.0.0.2", 2}));
  EXPECT_TRUE(host.book.is_complete());
  EXPECT_EQ(host.heard_by(1), 0u);
  EXPECT_EQ(host.heard_by(2), 3 * kAddressBytes);
}

TEST(AddressBook, WhoWasStartedAgainWhenAllKnewItsAddressIsNamed) {
  Host host;
  host.come(1);
  host.come(2);
  ASSERT_TRUE(host.say(1, {"10.0.0.1", 1}));
  ASSERT_TRUE(host.say(2, {"10.0.0.2", 2}));
  host.come(2);
  testing::expect_refused(host.say(2, {"10.0.0.2", 3}), ErrorCode::kPeerLost, 2,
                          {"rank 2 was started again, at 10.0.0.2:3"});
}

// An address of this machine that is not loopback; empty where there is none.
std::string outer_address() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET ||
        (one->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    found = ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
  }
  ::freeifaddrs(all);
  return found;
}

GuardedFd bound_to(const std::string& host) {
  GuardedFd socket = GuardedFd::open([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  const auto address = SocketAddress::from_numeric(host, 0);
  EXPECT_EQ(::bind(socket.get(), address->get(), address->length()), 0);
  return socket;
}

TEST(AddressBook, LoopbackIsRefusedWhereARankIsOnAnotherMachine) {
  const std::string outside = outer_address();
  if (outside.empty()) GTEST_SKIP() << "SKIPPED: this machine has no address but loopback";
  // As if rank 1 were on another machine: its connection has different addresses at its two ends.
  for (const bool far : {false, true}) {
    Host host;
    host.come(1);
    host.come(2);
    const GuardedFd listener = bound_to("127.0.0.1");
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    host.others[1] = bound_to(far ? outside : "127.0.0.1");
    const auto address = SocketAddress::of_socket(listener.get());
    ASSERT_EQ(::connect(host.others[1].get(), address->get(), address->length()), 0);
    host.sockets[1].data =
        GuardedFd::open([&] { return ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC); });
    ASSERT_TRUE(host.say(1, {"10.0.0.1", 1}));
    const Status status = host.say(2, {"127.0.0.1", 2});
    ASSERT_EQ(status.has_value(), !far);
    if (!far) continue;
    testing::expect_refused(status, ErrorCode::kInvalidArgument, 2,
                            {"rank 2 listens on 127.0.0.1, which rank 1 at " + outside});
  }
}

}  // namespace
}  // namespace deltawire::address_book_test
