// Listening: addresses, names, interfaces, ports and ranges of them.
#include "base/refusal_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::listener_test {
namespace {

TEST(ListenTcp, ATakenPortIsNamed) {
  const auto first = listen_tcp("127.0.0.1");
  ASSERT_TRUE(first.has_value());
  testing::expect_refused(listen_tcp("127.0.0.1", (*first)->endpoint().port), ErrorCode::kAddressInUse,
                          "127.0.0.1:" + std::to_string((*first)->endpoint().port));
}

TEST(ListenTcp, ARangeGivesItsFirstFreePort) {
  // Ports that are free now, and next to each other.
  std::vector<std::unique_ptr<Listener>> held;
  std::uint16_t first = 0;
  while (held.size() < 3) {
    auto next = listen_tcp("127.0.0.1", held.empty() ? 0 : static_cast<std::uint16_t>(first + held.size()));
    if (!next || (*next)->endpoint().port > 65533) {
      held.clear();
      continue;
    }
    if (held.empty()) first = (*next)->endpoint().port;
    held.push_back(std::move(*next));
  }
  const PortRange range{first, static_cast<std::uint16_t>(first + 2)};
  testing::expect_refused(listen_tcp("127.0.0.1", range), ErrorCode::kAddressInUse,
                          {std::to_string(first) + "-" + std::to_string(first + 2), "127.0.0.1", "taken"});
  held[2].reset();
  const auto last = listen_tcp("127.0.0.1", range);
  ASSERT_TRUE(last.has_value()) << last.error().message;
  EXPECT_EQ((*last)->endpoint().port, range.last);
  held[0].reset();
  const auto lowest = listen_tcp("127.0.0.1", range);
  ASSERT_TRUE(lowest.has_value()) << lowest.error().message;
  EXPECT_EQ((*lowest)->endpoint().port, first);
  // A range of one is a port, and none at all is any.
  EXPECT_TRUE(
      has(listen_tcp("127.0.0.1", PortRange{first, first}).error(), std::to_string(first) + " is taken"));
  EXPECT_NE((*listen_tcp("127.0.0.1", PortRange{}))->endpoint().port, 0);
}

TEST(ListenTcp, ARangeIsChecked) {
  for (const PortRange range : {PortRange{0, 5}, PortRange{6, 5}, PortRange{65535, 0}}) {
    testing::expect_refused(listen_tcp("127.0.0.1", range), ErrorCode::kInvalidArgument,
                            std::to_string(range.first) + "-");
  }
  EXPECT_EQ(listen_tcp("192.0.2.1", PortRange{29600, 29601}).error().code, ErrorCode::kInvalidArgument);
}

TEST(Ports, AreAPortOrARange) {
  const auto has_ports = [](const char* text, int first, int last) {
    const auto ports = parse_ports(text);
    return ports && ports->first == first && ports->last == last;
  };
  EXPECT_TRUE(has_ports("", 0, 0));
  EXPECT_TRUE(has_ports("0", 0, 0));
  EXPECT_TRUE(has_ports("29600", 29600, 29600));
  EXPECT_TRUE(has_ports("29600-29699", 29600, 29699));
  for (const char* text : {"-", "5-", "-5", "6-5", "0-5", "1-65536", "1 - 2", "+5", "1-2-3", "port"}) {
    testing::expect_refused(parse_ports(text), ErrorCode::kInvalidArgument,
                            std::string("\"") + text + "\" is no range of ports");
  }
}

class ListenByEnvironment : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv("DELTAWIRE_INTERFACE"); }
};

TEST_F(ListenByEnvironment, AnInterfaceTakesThePlaceOfTheAddressTowardsOthers) {
  ::setenv("DELTAWIRE_INTERFACE", "127.0.0.7", 1);
  EXPECT_EQ(local_address_towards("127.0.0.1").value(), "127.0.0.7");
  for (const int rank : {0, 1}) {
    EXPECT_EQ(listen_for({"127.0.0.1", 0}, rank).value()->endpoint().host, "127.0.0.7");
    EXPECT_EQ(listen_for({"127.0.0.1", 0}, rank, {}, "127.0.0.8").value()->endpoint().host, "127.0.0.8");
  }
  ::setenv("DELTAWIRE_INTERFACE", "nosuch0", 1);
  EXPECT_TRUE(has(local_address_towards("127.0.0.1").error(), "DELTAWIRE_INTERFACE: \"nosuch0\" is neither"));
  ::setenv("DELTAWIRE_INTERFACE", "", 1);
  EXPECT_EQ(local_address_towards("127.0.0.1").value(), "127.0.0.1");
}

TEST(ListenTcp, HostsAreQuotedPrintably) {
  EXPECT_TRUE(has(listen_tcp("no\nsuch\xFF").error(), "\"no such\xEF\xBF\xBD\""));
  EXPECT_TRUE(has(local_address_towards("no\nsuch\xFF").error(), "\"no such\xEF\xBF\xBD\""));
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

TEST(ListenFor, AnInterfaceTakesThePlaceOfTheAddressAndOfNoPort) {
  const auto first = listen_for({"no-such-host.invalid", 0}, 0, {}, "lo");
  ASSERT_TRUE(first.has_value()) << first.error().message;
  EXPECT_EQ((*first)->endpoint().host, "127.0.0.1");
  EXPECT_EQ(listen_for((*first)->endpoint(), 0).error().code, ErrorCode::kAddressInUse);
  const auto other = listen_for({"no-such-host.invalid", 1}, 1, {}, "lo");
  ASSERT_TRUE(other.has_value()) << other.error().message;
  EXPECT_NE((*other)->endpoint().port, 1);
  EXPECT_EQ((*listen_for((*first)->endpoint(), 1))->endpoint().host, "127.0.0.1");
}

TEST(ListenFor, ANameWithoutAnAddressIsLookedUpUntilTheTimeIsOver) {
  for (const int rank : {0, 1}) {
    const Deadline begun = Clock::now();
    const auto listener = listen_for({"rank0.invalid", 29600}, rank, {}, {}, 2s);
    ASSERT_FALSE(listener.has_value());
    EXPECT_GE(Clock::now() - begun, 2s);
    testing::expect_refused(listener, ErrorCode::kInvalidArgument,
                            {"\"rank0.invalid\"", "for 2000 ms, as the address of rank 0"});
  }
  int asked = 0;
  testing::expect_refused(listen_for({"rank0.invalid", 29600}, 1, {}, {}, 60s, [&] { return ++asked > 2; }),
                          ErrorCode::kAborted);
}

TEST(Endpoint, IsReadAsItIsWritten) {
  for (const std::string_view text : {"10.0.0.1:29600", "node1:1", "[fd00::1]:65535", "[fe80::1%eth0]:7"}) {
    const auto endpoint = parse_endpoint(text);
    ASSERT_TRUE(endpoint.has_value()) << endpoint.error().message;
    EXPECT_EQ(to_string(*endpoint), text);
  }
  EXPECT_EQ(parse_endpoint("[fd00::1]:2")->host, "fd00::1");
}

TEST(Endpoint, NothingElseIsRead) {
  for (const std::string_view text : {"", ":", "host", "host:", ":1", "host:0", "host:65536", "host:1x",
                                      "host:-1", "host: 1", "::1:80", "[]:1", "[:1", "a:b:1"}) {
    testing::expect_refused(parse_endpoint(text), ErrorCode::kInvalidArgument, "is not HOST:PORT");
  }
}

TEST(Token, IsTheSecretItselfOrAHashOfIt) {
  const auto of = [](const std::string& secret) {
    return deltawire::token_of(std::as_bytes(std::span(secret)));  // not the tests' own
  };
  const std::string whole(32, 't');
  EXPECT_TRUE(std::ranges::equal(of(whole).value(), std::as_bytes(std::span(whole))));
  // printf 'deltawire token sixteen bytes ok' | sha256sum
  const Token hashed = of("sixteen bytes ok").value();
  EXPECT_EQ(std::to_integer<int>(hashed[0]), 0xc7);
  EXPECT_EQ(std::to_integer<int>(hashed[31]), 0xbc);
  EXPECT_EQ(of("fifteen bytes!!").error().code, ErrorCode::kInvalidArgument);
}

TEST(Token, ALineBreakBehindItIsNoPartOfASecret) {
  const auto of = [](const std::string& secret) {
    return deltawire::token_of(std::as_bytes(std::span(secret)));
  };
  for (const std::string& secret : {std::string(64, 'a'), std::string(32, 't'), std::string(16, 'b')}) {
    EXPECT_EQ(of(secret).value(), of(secret + "\n").value());
    EXPECT_EQ(of(secret).value(), of(secret + "\r\n").value());
    EXPECT_NE(of(secret).value(), of(secret + "\n\n").value());
    EXPECT_NE(of(secret).value(), of(secret + " ").value());
  }
  // Random bytes may end with one.
  const std::string bytes = std::string(31, 'r') + "\n";
  EXPECT_TRUE(std::ranges::equal(of(bytes).value(), std::as_bytes(std::span(bytes))));
  EXPECT_EQ(of("fifteen bytes!!\n").error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deltawire::test::listener_test
