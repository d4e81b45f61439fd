// Which connections are encrypted, by their addresses.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "transport/mesh_testing.h"
#include "transport/tcp/address.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/listener.h"

namespace deltawire::test::encryption_policy_test {
namespace {

GuardedFd accepted_by(Listener& listener) {
  const auto& tcp = static_cast<TcpListener&>(listener);
  std::vector<pollfd> polls;
  tcp.add_interests(polls);
  ::poll(polls.data(), polls.size(), 5000);
  return tcp.accept();
}

// Addresses decide with kAuto: 127.0.0.1 dials this machine's own address in another network, and only the
// dialing end sees two different machines.
TEST(EncryptionPolicy, AddressesDecideWithAuto) {
  const auto connected = [](const std::string& from, const std::string& to) {
    auto listener = listen_tcp(to);
    const auto target = *SocketAddress::from_numeric(to, (*listener)->endpoint().port);
    const auto source = *SocketAddress::from_numeric(from, 0);
    std::array<GuardedFd, 2> ends;
    ends[0] = GuardedFd::open([&] { return ::socket(target.family(), SOCK_STREAM, 0); });
    EXPECT_EQ(::bind(ends[0].get(), source.get(), source.length()), 0);
    EXPECT_EQ(::connect(ends[0].get(), target.get(), target.length()), 0);
    ends[1] = accepted_by(**listener);
    return ends;
  };
  const EncryptionPolicy by_address{Encryption::kAuto, nullptr};
  for (const auto& ends : {connected("127.0.0.1", "127.0.0.1"), connected("127.0.0.1", "127.0.0.2"),
                           GuardedFd::open_socket_pair()}) {
    for (const GuardedFd& end : ends) {
      EXPECT_FALSE(by_address.demands_tls(end.get()));
      EXPECT_TRUE((EncryptionPolicy{Encryption::kRequired, nullptr}).demands_tls(end.get()));
      EXPECT_FALSE((EncryptionPolicy{Encryption::kOff, nullptr}).demands_tls(end.get()));
    }
  }
  EXPECT_TRUE(by_address.demands_tls(-1)) << "unknown";
  const auto own = local_address_towards("192.0.2.1");
  if (!own) GTEST_SKIP() << "this machine has loopback alone";
  for (const GuardedFd& end : connected(*own, *own)) EXPECT_FALSE(by_address.demands_tls(end.get()));
  const auto across = connected("127.0.0.1", *own);
  EXPECT_TRUE(by_address.demands_tls(across[0].get()));
}

// Two machines in the eyes of rank 0, one in the eyes of rank 1: a relay that makes connections look local.
TEST(EncryptionPolicy, ARelayThatHidesTheOtherMachineIsNamed) {
  const auto own = local_address_towards("192.0.2.1");
  if (!own) GTEST_SKIP() << "this machine has loopback alone";
  const Token token = token_of(7);
  const EncryptionPolicy policy{Encryption::kAuto, *TlsContext::make(token)};
  // The ends of a connection that comes from elsewhere: see above.
  auto listener = listen_tcp("127.0.0.1");
  const auto target = *SocketAddress::from_numeric("127.0.0.1", (*listener)->endpoint().port);
  GuardedFd dialing = GuardedFd::open([] { return ::socket(AF_INET, SOCK_STREAM, 0); });
  const auto source = *SocketAddress::from_numeric(*own, 0);
  ASSERT_EQ(::bind(dialing.get(), source.get(), source.length()), 0);
  ASSERT_EQ(::connect(dialing.get(), target.get(), target.length()), 0);
  GuardedFd accepted = accepted_by(**listener);
  Claims dials;
  dials.rank = 1;
  dials.world_size = 2;
  dials.text = "settings";
  Claims listens = dials;
  listens.role = Claims::Role::kListener;
  listens.rank = 0;
  const auto nonblocking = [](const GuardedFd& fd) { ::fcntl(fd.get(), F_SETFL, O_NONBLOCK); };
  nonblocking(dialing);
  nonblocking(accepted);
  Greeting dialer(std::move(dialing), policy, token, dials, *random_nonce());
  Greeting host(std::move(accepted), policy, token, listens, *random_nonce());
  Exchange at_dialer = Exchange::kMore;
  Exchange at_host = Exchange::kMore;
  for (const Deadline end = soon();
       Clock::now() < end && (at_dialer == Exchange::kMore || at_host == Exchange::kMore);) {
    if (at_dialer == Exchange::kMore) at_dialer = dialer.advance();
    if (at_host == Exchange::kMore) at_host = host.advance();
  }
  ASSERT_EQ(at_dialer, Exchange::kDone);
  ASSERT_EQ(at_host, Exchange::kDone);
  EXPECT_TRUE(host.lacks_encryption());
  EXPECT_EQ(dialer.peer().problem, static_cast<std::uint8_t>(ErrorCode::kMismatch));
  EXPECT_NE(dialer.peer().text.find("encryption=\"auto\" and refuses a connection from " + *own),
            std::string::npos)
      << dialer.peer().text;
}

TEST(EncryptionPolicy, ItsNamesAreRead) {
  EXPECT_EQ(parse_encryption("auto"), Encryption::kAuto);
  EXPECT_EQ(parse_encryption("required"), Encryption::kRequired);
  EXPECT_EQ(parse_encryption("off"), Encryption::kOff);
  for (const char* text : {"", "on", "Required", "required "}) {
    const auto parsed = parse_encryption(text);
    ASSERT_FALSE(parsed.has_value());
    EXPECT_NE(parsed.error().text().find("\"auto\", \"required\" or \"off\""), std::string::npos);
  }
}

}  // namespace
}  // namespace deltawire::test::encryption_policy_test
