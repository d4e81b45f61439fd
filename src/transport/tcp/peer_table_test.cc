// Unit tests of PeerTable: which ranks belong to a mesh by their claims, and how a rank that gives up says
// why.
#include "transport/tcp/peer_table.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/refusal_testing.h"
#include "transport/mesh/settings.h"
#include "transport/tcp/address.h"

namespace deltawire::peer_table_test {
namespace {

MeshOptions options_of(int rank) {
  MeshOptions options;
  options.rank = rank;
  options.world_size = 4;
  options.settings = "codec=3lc";
  options.epoch = 7;
  return options;
}

// What rank 2 says to rank 1.
Claims right_claims() {
  Claims claims;
  claims.rank = 2;
  claims.peer = 1;
  claims.world_size = 4;
  claims.epoch = 7;
  claims.text = "codec=3lc";
  return claims;
}

template <class Change>
Error verdict_on(Change change) {
  Claims claims = right_claims();
  change(claims);
  PeerTable peer_table(options_of(1));
  const Status status = peer_table.check(claims);
  EXPECT_FALSE(status.has_value());
  return status ? Error{} : status.error();
}

bool has(const Error& error, const std::string& part) {
  return error.text().find(part) != std::string::npos;
}

TEST(PeerTable, EachFieldIsCompared) {
  PeerTable peer_table(options_of(1));
  EXPECT_TRUE(peer_table.check(right_claims()).has_value());
  for (const auto& [change, says] : std::vector<std::pair<void (*)(Claims&), const char*>>{
           {[](Claims& h) { h.version = 1; }, "speaks handshake version 1"},
           {[](Claims& h) { h.version = Claims::kVersion + 1; }, "speaks handshake version 10"},
           {[](Claims& h) { h.world_size = 3; }, "a world of 3 ranks"},
           {[](Claims& h) { h.world_size = 5; }, "a world of 5 ranks"},
           {[](Claims& h) { h.peer = 0; }, "expects rank 0 at the endpoint of rank 1"},
           {[](Claims& h) { h.peer = 2; }, "expects rank 2 at the endpoint of rank 1"},
           {[](Claims& h) { h.epoch = 6; }, "rank 2 belongs to membership epoch 6, rank 1 to epoch 7"},
           {[](Claims& h) { h.epoch = 7 + (1u << 31); }, "membership epoch 2147483655"},
       }) {
    const Error error = verdict_on(change);
    testing::expect_error(error, ErrorCode::kMismatch, 2, {says});
  }
  EXPECT_EQ(verdict_on([](Claims& h) { h.rank = 1; }).suspect, 1);
  for (const std::uint32_t rank : {4u, 0x80000000u, 0xFFFFFFFFu}) {
    const Error error = verdict_on([rank](Claims& h) { h.rank = rank; });
    testing::expect_error(error, ErrorCode::kMismatch, kNoSuspect,
                          {"rank " + std::to_string(rank) + " in the world of 4"});
  }
}

// Rank 1's error once it knows the settings of all four ranks.
Error verdict_on_settings(const std::vector<std::string>& settings) {
  MeshOptions options = options_of(1);
  options.settings = settings[1];
  PeerTable peer_table(options);
  for (const std::uint32_t rank : {0u, 2u, 3u}) {
    Claims claims = right_claims();
    claims.rank = rank;
    claims.text = settings[rank];
    EXPECT_TRUE(peer_table.check(claims).has_value()) << "it may not be the odd one";
  }
  const Status compared = peer_table.compare_settings();
  return compared ? Error{} : compared.error();
}

TEST(PeerTable, TheFewestWithOtherSettingsAreNamedByTheWordsThatDiffer) {
  EXPECT_EQ(verdict_on_settings({"a b", "a b", "a b", "a b"}).message, "");
  Error error = verdict_on_settings(
      {"direct(3lc) n=1 x", "direct(3lc) n=2 x", "direct(3lc) n=2 x", "direct(3lc) n=2 x"});
  testing::expect_error(error, ErrorCode::kMismatch, 0);
  EXPECT_EQ(error.text(), R"(rank 0 has the settings "n=1", rank 1 and 2 others have "n=2"; start all ranks )"
                          "with the same settings");
  error = verdict_on_settings({"a", "b", "b", "a"});
  EXPECT_EQ(error.suspect, 1) << "not the lowest rank's";
  EXPECT_TRUE(has(error, R"("b", rank 0 and another have "a")")) << error.text();
  EXPECT_EQ(verdict_on_settings({"a", "a", "b", "c"}).suspect, 3);
  EXPECT_TRUE(has(verdict_on_settings({"n=1", "n=1", "n=1", "n=1 more"}), R"("n=1 more", rank 0)"));
  EXPECT_TRUE(has(verdict_on_settings({"n=1", "n=1", "n=1", ""}), R"("", rank 0 and 2 others have "n=1")"));
}

TEST(PeerTable, SettingsOfAnyLengthAreCompared) {
  const std::string text(3000, 'x');
  std::string other = text;
  other.back() = 'y';
  EXPECT_EQ(fitted_settings("short"), "short");
  EXPECT_EQ(fitted_settings(text).size(), kSettingsMax);
  EXPECT_NE(fitted_settings(text), fitted_settings(other));
  const Error error = settings_mismatch(1, fitted_settings(text), 0, fitted_settings(other));
  EXPECT_FALSE(has(error, "xxx")) << "the digests say it: " << error.text();
  const std::string most(kSettingsMax - 1, 'x');
  EXPECT_EQ(verdict_on_settings({most + "x", most + "x", most + "x", most + "y"}).suspect, 3);
}

// A connection of rank 2 on one stream, and its other end.
struct Line {
  std::array<GuardedFd, 2> ends = GuardedFd::open_socket_pair();

  Status join(PeerTable& peer_table, Claims::Stream stream, std::uint64_t life) {
    Claims claims = right_claims();
    claims.stream = stream;
    claims.life = life;
    return peer_table.add(claims, std::move(ends[0]));
  }
};

TEST(PeerTable, ARankThatComesAgainTakesItsPlace) {
  PeerTable peer_table(options_of(1));
  std::array<Line, 4> lines;
  ASSERT_TRUE(lines[0].join(peer_table, Claims::Stream::kData, 5));
  ASSERT_TRUE(lines[1].join(peer_table, Claims::Stream::kControl, 5));
  EXPECT_EQ(peer_table.missing(), (std::vector<int>{0, 3}));
  EXPECT_EQ(peer_table.data_streams()[2], 1u);
  // The same process, which saw its connection end before this rank did.
  const int before = peer_table.sockets()[2].data.get();
  ASSERT_TRUE(lines[2].join(peer_table, Claims::Stream::kData, 5));
  EXPECT_NE(peer_table.sockets()[2].data.get(), before);
  EXPECT_EQ(peer_table.data_streams()[2], 2u);
  peer_table.drop(2, Claims::Stream::kData);
  EXPECT_EQ(peer_table.missing(), (std::vector<int>{0, 2, 3}));
  ASSERT_TRUE(lines[3].join(peer_table, Claims::Stream::kData, 5));
  EXPECT_EQ(peer_table.missing(), (std::vector<int>{0, 3}));
}

TEST(PeerTable, AnotherProcessTakesAPlaceOnlyAfterADeath) {
  PeerTable peer_table(options_of(1));
  std::array<Line, 5> lines;
  ASSERT_TRUE(lines[0].join(peer_table, Claims::Stream::kData, 5));
  ASSERT_TRUE(lines[1].join(peer_table, Claims::Stream::kControl, 5));
  testing::expect_refused(lines[2].join(peer_table, Claims::Stream::kData, 6), ErrorCode::kMismatch, 2,
                          {"two processes call themselves rank 2"});
  lines[0].ends[1].reset();
  lines[1].ends[1].reset();
  ASSERT_TRUE(lines[3].join(peer_table, Claims::Stream::kControl, 6));
  EXPECT_FALSE(peer_table.sockets()[2].data) << "it was the dead one's";
  EXPECT_EQ(peer_table.missing(), (std::vector<int>{0, 2, 3}));
  ASSERT_TRUE(lines[4].join(peer_table, Claims::Stream::kData, 6));
  EXPECT_EQ(peer_table.missing(), (std::vector<int>{0, 3}));
}

TEST(PeerTable, AProblemComesWithItsCodeAndItsSuspect) {
  const auto problem = [](std::uint8_t code, std::uint16_t suspect, std::string text) {
    return verdict_on([&](Claims& h) {
      h.problem = code;
      h.names_reporter = text.starts_with("rank 2");
      h.suspect = suspect;
      h.text = std::move(text);
    });
  };
  Error error = problem(17, 3, "out\nof paper");
  testing::expect_error(error, ErrorCode::kSystem, 3);
  EXPECT_EQ(error.text(), "rank 2 reports: out of paper");
  EXPECT_EQ(error.reporter, 2);
  error = problem(99, Claims::kNobody, "rank 2 is odd");
  testing::expect_error(error, ErrorCode::kAborted, 2);
  EXPECT_EQ(error.text(), "rank 2 is odd");
  EXPECT_EQ(error.reporter, 2);
  EXPECT_EQ(problem(99, Claims::kNobody, "rank 0 is odd").text(), "rank 2 reports: rank 0 is odd");
  EXPECT_EQ(problem(1, 4, "").suspect, 2);
}

TEST(PeerTable, WhoGivesUpTellsTheMetAndListsTheOthers) {
  PeerTable one(options_of(1));
  PeerTable two(options_of(2));
  for (const auto stream : {Claims::Stream::kData, Claims::Stream::kControl}) {
    auto ends = GuardedFd::open_socket_pair();
    ASSERT_TRUE(ends[0] && ends[1]);
    Claims claims = right_claims();
    claims.stream = stream;
    ASSERT_TRUE(one.add(claims, std::move(ends[0])));
    claims.rank = 1;
    ASSERT_TRUE(two.add(claims, std::move(ends[1])));
  }
  EXPECT_EQ(one.missing(), (std::vector<int>{0, 3}));
  EXPECT_FALSE(two.exit_reason_of(1).has_value()) << "nothing was said";
  one.note_told(0xFFFFFFFF);  // no such rank
  one.note_told(3);
  const std::string reason = std::string(2000, 'x') + "\n";
  one.give_up({ErrorCode::kSystem, reason, 3});
  EXPECT_TRUE(one.has_given_up());
  EXPECT_EQ(one.missing(), (std::vector<int>{0})) << "2 was met and told, and 3 knows";
  const auto heard = two.exit_reason_of(1);
  ASSERT_TRUE(heard.has_value());
  EXPECT_EQ(heard->code, ErrorCode::kSystem);
  EXPECT_EQ(heard->suspect, 3);
  EXPECT_TRUE(heard->text().starts_with("rank 1 reports: xxx")) << heard->text();
  const Claims own = one.own_claims(Claims::Role::kListener);
  EXPECT_EQ(own.problem, 17u);
  EXPECT_EQ(own.suspect, 3u);
  EXPECT_EQ(own.text, reason.substr(0, kSettingsMax));
  one.note_told(0);
  EXPECT_TRUE(one.is_complete());
}

TEST(SocketAddress, AHostIsTheSameOnAnyPort) {
  const auto address = [](const std::string& host, std::uint16_t port) {
    return SocketAddress::from_numeric(host, port).value();
  };
  EXPECT_TRUE(address("10.1.2.3", 5).has_host_of(address("10.1.2.3", 6)));
  EXPECT_FALSE(address("10.1.2.3", 5).has_host_of(address("10.1.2.4", 5)));
  EXPECT_TRUE(address("fd00::1", 5).has_host_of(address("fd00::1", 6)));
  EXPECT_FALSE(address("fd00::1", 5).has_host_of(address("fd00:0:1::1", 5)));
  EXPECT_FALSE(address("0.0.0.0", 5).has_host_of(address("::1", 5)));
}

int send_bytes_of(int fd) {
  int bytes = 0;
  socklen_t length = sizeof bytes;
  EXPECT_EQ(::getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &length), 0);
  return bytes;
}

// Only data streams. The kernel doubles the number.
TEST(PeerTable, DataWithinAMachineIsSentFromASmallBuffer) {
  const auto listener = listen_tcp("127.0.0.1");
  ASSERT_TRUE(listener.has_value());
  const auto address = SocketAddress::from_numeric("127.0.0.1", (*listener)->endpoint().port);
  PeerTable peer_table(options_of(1));
  Claims claims = right_claims();
  for (const auto stream : {Claims::Stream::kData, Claims::Stream::kControl}) {
    claims.stream = stream;
    GuardedFd socket = GuardedFd::open([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
    ASSERT_EQ(::connect(socket.get(), address->get(), address->length()), 0);
    const int before = send_bytes_of(socket.get());
    ASSERT_TRUE(peer_table.add(claims, std::move(socket)));
    const PeerSockets& kept = peer_table.sockets()[2];
    if (stream == Claims::Stream::kData) {
      EXPECT_EQ(send_bytes_of(kept.data.get()), 768 << 10);
    } else {
      EXPECT_EQ(send_bytes_of(kept.control.get()), before);
    }
  }
  auto ends = GuardedFd::open_socket_pair();
  claims.rank = 3;
  claims.stream = Claims::Stream::kData;
  ASSERT_TRUE(peer_table.add(claims, std::move(ends[0])));
  EXPECT_EQ(send_bytes_of(peer_table.sockets()[3].data.get()), 768 << 10);
}

TEST(PeerTable, WhoseClaimsAreRefusedNeedsNoTelling) {
  PeerTable peer_table(options_of(1));
  Claims claims = right_claims();
  claims.epoch = 8;
  const Status refused = peer_table.check(claims);
  ASSERT_FALSE(refused.has_value());
  peer_table.give_up(refused.error());
  EXPECT_EQ(peer_table.missing(), (std::vector<int>{0, 3}));
}

}  // namespace
}  // namespace deltawire::peer_table_test
