// Which congestion control a connection has in the end. Loopback stands for a long line: its round trip is
// short, and so is what the test calls long.
#include "transport/tcp/long_line.h"

#include <array>
#include <cstdlib>
#include <utility>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "deltawire/connect.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::long_line_test {
namespace {

constexpr std::chrono::microseconds kAny{1};

// Both ends of a connection over loopback whose congestion control is reno, which any process may choose.
std::array<Connection, 2> connect_by_reno() {
  GuardedFd listener = GuardedFd::open([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::setsockopt(listener.get(), IPPROTO_TCP, TCP_CONGESTION, "reno", 4), 0);
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  GuardedFd dialed = GuardedFd::open([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  EXPECT_EQ(::setsockopt(dialed.get(), IPPROTO_TCP, TCP_CONGESTION, "reno", 4), 0);
  EXPECT_EQ(::connect(dialed.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  GuardedFd answered =
      GuardedFd::open([&] { return ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC); });
  return {Connection(std::move(dialed)), Connection(std::move(answered))};
}

std::string control_of(const Connection& line) {
  std::array<char, 16> name{};
  socklen_t length = name.size() - 1;
  EXPECT_EQ(::getsockopt(line.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length), 0);
  return name.data();
}

TEST(LongLine, ShortOnesKeepWhatTheKernelMade) {
  const auto ends = connect_by_reno();
  EXPECT_GT(ends[0].state().round_trip.count(), 0);
  EXPECT_EQ(ask_for_bbr(ends[0], std::chrono::hours(1)), 0);
  EXPECT_EQ(control_of(ends[0]), "reno");
  EXPECT_EQ(ask_for_bbr(Connection{}), 0) << "this rank itself has none";
}

TEST(LongLine, ItsStateIsWhatTheKernelKnows) {
  const auto ends = connect_by_reno();
  const std::array<std::byte, 100> message{};
  ASSERT_EQ(ends[0].send(message).bytes, message.size());
  const LineState state = ends[0].state();
  EXPECT_EQ(state.congestion_control, "reno");
  EXPECT_GE(state.bytes_sent, message.size());
  EXPECT_EQ(state.bytes_resent, 0u);
  EXPECT_GT(state.segment_bytes, 500u);
  const LineState none = Connection{}.state();
  EXPECT_EQ(none.congestion_control, "");
  EXPECT_EQ(none.segment_bytes, 0u);
}

TEST(LongLine, LongOnesGetBbrOrAnErrno) {
  const auto ends = connect_by_reno();
  const int refused = ask_for_bbr(ends[0], kAny);
  EXPECT_EQ(control_of(ends[0]), refused == 0 ? "bbr" : "reno") << refused;
}

TEST(LongLine, AKernelThatRefusesIsALineForTheLog) {
  std::vector<PeerSockets> sockets(3);
  auto data = connect_by_reno();
  auto control = connect_by_reno();
  sockets[2].data = std::move(data[0]);
  sockets[2].control = std::move(control[0]);
  const std::string text = fit_long_lines(1, sockets, kAny);
  EXPECT_EQ(control_of(sockets[2].control), control_of(sockets[2].data));
  if (control_of(sockets[2].data) == "bbr") {
    EXPECT_EQ(text, "");
  } else {
    EXPECT_TRUE(text.starts_with("rank 1's lines to rank 2 are long, and their congestion control is reno"))
        << text;
  }
}

TEST(LongLine, SwitchesOfTheEnvironmentAreOnOrOff) {
  for (const std::string variable : {"DELTAWIRE_BBR", "DELTAWIRE_SHARED_MEMORY"}) {
    ::setenv(variable.c_str(), "no", 1);
    MeshOptions options;
    options.endpoints = {{"127.0.0.1", 0}};
    const auto mesh = connect_tcp(listen_tcp("127.0.0.1").value(), options);
    ::unsetenv(variable.c_str());
    ASSERT_FALSE(mesh);
    EXPECT_EQ(mesh.error().message, variable + R"(="no" is neither "on" nor "off")");
  }
}

}  // namespace
}  // namespace deltawire::test::long_line_test
