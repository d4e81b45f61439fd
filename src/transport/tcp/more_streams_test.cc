// Ranks that talk over several TCP streams: how many they agree on, and that one may break.

#include <cstdlib>
#include <string>
#include <vector>

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/refusal_testing.h"
#include "transport/mesh_testing.h"
#include "transport/tcp/long_line.h"
#include "transport/tcp/roll_call.h"

namespace deltawire::test::more_streams_test {
namespace {

LineState line_of(std::chrono::microseconds round_trip, const std::string& control) {
  LineState line;
  line.round_trip = round_trip;
  line.congestion_control = control;
  line.segment_bytes = 1448;
  return line;
}

TEST(MoreStreams, LongLinesHaveSeveral) {
  EXPECT_EQ(streams_for(line_of(4ms, "cubic"), 0), 1);
  EXPECT_EQ(streams_for(line_of(5ms, "cubic"), 0), 8);
  EXPECT_EQ(streams_for(line_of(5ms, "bbr"), 0), 4);
  EXPECT_EQ(streams_for(line_of(200ms, "cubic"), 1), 1);
  EXPECT_EQ(streams_for(line_of(1ms, "cubic"), 3), 3);
  EXPECT_EQ(streams_for(LineState{}, 8), 1) << "no TCP";
}

class StreamsWanted : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv("DELTAWIRE_STREAMS"); }
};

TEST_F(StreamsWanted, AreReadFromTheEnvironment) {
  EXPECT_EQ(wanted_streams().value(), 0);
  for (const auto& [text, number] : {std::pair{"auto", 0}, {"", 0}, {"1", 1}, {"8", 8}}) {
    ::setenv("DELTAWIRE_STREAMS", text, 1);
    EXPECT_EQ(wanted_streams().value(), number);
  }
  for (const char* text : {"0", "9", "12", "-1", "all", "2 "}) {
    ::setenv("DELTAWIRE_STREAMS", text, 1);
    EXPECT_EQ(wanted_streams().error().code, ErrorCode::kInvalidArgument) << text;
  }
  MeshOptions options;
  options.endpoints = {{"127.0.0.1", 0}};
  EXPECT_FALSE(connect_tcp(listen_tcp("127.0.0.1").value(), options));
  ::unsetenv("DELTAWIRE_STREAMS");
  options.streams = 9;
  const auto mesh = connect_tcp(listen_tcp("127.0.0.1").value(), options);
  ASSERT_FALSE(mesh);
  EXPECT_EQ(mesh.error().message,
            "connect_tcp: streams must be 1 to 8, or 0 for as many as the line asks for, not 9");
}

// The sockets of this process that are connected to `port` and have messages on them: those for control have
// a time limit of their own.
std::vector<int> data_sockets_to(std::uint16_t port) {
  std::vector<int> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  while (const dirent* entry = ::readdir(folder.get())) {
    const int fd = std::atoi(entry->d_name);
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0 || peer.sin_family != AF_INET)
      continue;
    int limit = 0;
    socklen_t limit_length = sizeof limit;
    const bool has_limit =
        ::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, &limit_length) == 0 && limit != 0;
    if (ntohs(peer.sin_port) == port && !has_limit) found.push_back(fd);
  }
  return found;
}

TEST(MoreStreams, AllRanksAgreeOnTheirNumber) {
  for (const Encryption encryption : {Encryption::kOff, Encryption::kRequired}) {
    const Ranks ranks = connect_threads_over_tcp(3, {}, encryption, 4);
    run_ranks(3, [&](int rank) {
      Transport& self = *ranks[static_cast<std::size_t>(rank)];
      for (int peer = 0; peer < 3; ++peer) {
        EXPECT_EQ(self.line_state(peer).streams, peer == rank ? 1 : 4);
      }
      exchange_once(self);
    });
  }
}

TEST(MoreStreams, OnOneMachineThereIsOne) {
  const Ranks ranks =
      connect_listeners(listen_all(2), [](int, MeshOptions& options) { options.streams = 8; });
  EXPECT_EQ(ranks[0]->line_state(1).streams, 1);
}

TEST(MoreStreams, ALostStreamIsNoLostRank) {
  Listeners all = listen_without_names(2);
  const std::uint16_t port = all.endpoints[0].port;
  const Ranks ranks =
      connect_listeners(std::move(all), [](int, MeshOptions& options) { options.streams = 3; });
  const std::vector<int> sockets = data_sockets_to(port);
  ASSERT_EQ(sockets.size(), 3u);
  const std::vector<std::byte> bytes = pattern(20000000, 3);
  run_ranks(2, [&](int rank) {
    Transport& self = *ranks[static_cast<std::size_t>(rank)];
    for (Tag tag = 1; tag <= 3; ++tag) {
      std::vector<std::byte> got(bytes.size());
      const Handle receive = self.post_recv(1 - rank, tag, got);
      const Handle send = send_bytes(self, 1 - rank, tag, bytes);
      // By the third message one stream is left.
      const bool is_cut = rank == 1 && tag < 3 && ::shutdown(sockets[tag], SHUT_RDWR) == 0;
      EXPECT_EQ(is_cut, rank == 1 && tag < 3);
      ASSERT_TRUE(self.wait(receive, soon()).has_value());
      ASSERT_TRUE(self.wait(send, soon()).has_value());
      EXPECT_TRUE(same_bytes(got, bytes));
    }
  });
}

TEST(MoreStreams, ARankThatDiesIsLostWithAllOfThem) {
  Ranks ranks = connect_threads_over_tcp(2, {}, Encryption::kOff, 4);
  std::vector<std::byte> got(1000);
  const Handle receive = ranks[0]->post_recv(1, 1, got);
  ranks[1].reset();
  testing::expect_refused(ranks[0]->wait(receive, soon()), ErrorCode::kPeerLost, 1);
}

TEST(RollCall, WaitsForTheStreamsThatTheOtherEndHasDialed) {
  std::vector<PeerSockets> sockets(2);
  auto ends = GuardedFd::open_socket_pair();
  sockets[1].data = std::move(ends[0]);
  const Connection other(std::move(ends[1]));
  const std::vector<std::uint32_t> streams{0, 1};
  RollCall call(0, 2);
  const std::byte two{'2'};
  ASSERT_EQ(other.send({&two, 1}).bytes, 1u);
  ASSERT_TRUE(call.advance(sockets, streams));
  EXPECT_FALSE(call.is_complete());
  EXPECT_NE(call.wake_at(), kNever);
  for (int number = 0; number < 2; ++number) {
    EXPECT_FALSE(call.is_complete());
    sockets[1].more.emplace_back(std::move(GuardedFd::open_socket_pair()[0]));
    ASSERT_TRUE(call.advance(sockets, streams));
  }
  EXPECT_TRUE(call.is_complete());
  EXPECT_EQ(call.wake_at(), kNever) << "a rank that waits for others would not sleep";
  call.settle_more(sockets);
  EXPECT_EQ(sockets[1].more.size(), 2u);
}

TEST(RollCall, SaysHowManyWereDialedOnceThatIsKnown) {
  std::vector<PeerSockets> sockets(2);
  auto ends = GuardedFd::open_socket_pair();
  sockets[0].data = std::move(ends[0]);
  const Connection other(std::move(ends[1]));
  const std::vector<std::uint32_t> streams{1, 0};
  RollCall call(1, 2);
  std::byte said{};
  ASSERT_TRUE(call.advance(sockets, streams, std::vector{MoreStreams::kDialing, 0}));
  EXPECT_EQ(other.recv({&said, 1}).kind, IoResult::Kind::kWouldBlock);
  std::vector<pollfd> polls;
  call.add_interests(sockets, polls);
  ASSERT_EQ(polls.size(), 1u);
  EXPECT_EQ(polls[0].events, POLLIN) << "there is room to say it, and it would not sleep";
  ASSERT_TRUE(call.advance(sockets, streams, std::vector{3, 0}));
  EXPECT_EQ(other.recv({&said, 1}).bytes, 1u);
  EXPECT_EQ(said, std::byte{'3'});
  EXPECT_EQ(call.silent_rank(), 0);
  call.settle_more(sockets);
  EXPECT_EQ(sockets[0].more.size(), 1u) << "segments come, although all further streams have broken";
}

}  // namespace
}  // namespace deltawire::test::more_streams_test
