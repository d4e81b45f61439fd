// Votes, places and starts through real meshes: what docs/design/commit.md promises of them.
#include <fstream>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/refusal_testing.h"
#include "transport/mesh/control_message.h"
#include "transport/mesh/make_mesh.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::vote_test {
namespace {

class Votes : public ::testing::TestWithParam<MeshKind> {};
INSTANTIATE_TEST_SUITE_P(Meshes, Votes, ::testing::ValuesIn(tested_meshes()), mesh_kind_name);

TEST_P(Votes, EqualVotesMakeAStepCount) {
  Ranks ranks = connect_ranks(GetParam(), 4);
  run_ranks(4, [&](int rank) {
    Transport& self = *ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(self.last_commit().step, kNoStep);
    for (std::uint64_t step = 7; step < 57; ++step) {
      self.arrive(step);
      const Ballot ballot{step, 1000 + step};
      const auto ballots = self.vote(ballot, soon());
      ASSERT_TRUE(ballots.has_value()) << ballots.error().message;
      EXPECT_TRUE(std::ranges::equal(*ballots, std::vector<Ballot>(4, ballot)));
      EXPECT_EQ(self.last_commit().step, step);
    }
  });
}

TEST_P(Votes, DifferentVotesAreReportedToAllRanks) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  run_ranks(3, [&](int rank) {
    Transport& self = *ranks[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(self.vote({4, 1}, soon()).has_value());
    const auto digest = static_cast<std::uint64_t>(rank);
    const auto ballots = self.vote({5, digest}, soon());
    ASSERT_TRUE(ballots.has_value()) << ballots.error().message;
    EXPECT_TRUE(std::ranges::equal(*ballots, std::vector<Ballot>{{5, 0}, {5, 1}, {5, 2}}));
    EXPECT_EQ(self.last_commit().step, 4u);  // step 5 does not count
  });
}

// If a rank has not voted when the mesh fails, the step counts on no rank.
TEST_P(Votes, AFailureBeforeOneOfThemRevertsTheStep) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  run_ranks(3, [&](int rank) {
    Transport& self = *ranks[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(self.vote({4, 1}, soon()).has_value());
    if (rank == 2) {
      self.abort({ErrorCode::kNotFinite, "element 7 is NaN", kNoSuspect});
      EXPECT_EQ(self.last_commit().step, 4u);
    }
    const auto ballots = self.vote({5, 1}, soon());
    testing::expect_refused(ballots, ErrorCode::kNotFinite, 2);
    EXPECT_EQ(ballots.error().last_committed_step, 4u);
    EXPECT_TRUE(self.last_commit().unheard.empty());
  });
}

// A rank that has its step may leave; the others have it too.
TEST_P(Votes, OfARankThatLeavesStand) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  run_ranks(3, [&](int rank) {
    auto& self = ranks[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(self->vote({9, 1}, soon()).has_value());
    self.reset();
  });
}

TEST_P(Votes, ThatNeverComeTimeOutAndNameTheRank) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  run_ranks(2, [&](int rank) {
    const auto ballots = ranks[static_cast<std::size_t>(rank)]->vote({4, 1}, in(2s));
    testing::expect_refused(ballots, ErrorCode::kTimeout, 2, {"the vote of rank 2"});
    EXPECT_EQ(ballots.error().last_committed_step, kNoStep);
  });
}

TEST_P(Votes, OneAtATime) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  std::thread first([&] { (void)ranks[0]->vote({1, 1}, soon()); });
  Result<std::span<const Ballot>> second = std::span<const Ballot>{};
  const Deadline until = soon();
  // Until the first one is open, this is the first one, and would wait.
  std::vector<std::byte> got(1);
  const Handle told = ranks[1]->post_recv(0, 1, got);
  send_and_forget(*ranks[0], 1, 1, got);
  ASSERT_TRUE(ranks[1]->wait(told, until).has_value());
  while (ranks[1]->traffic().bytes_received < 32 + 1 + 12 + 24) {
    ASSERT_LT(Clock::now(), until);
    std::this_thread::sleep_for(1ms);
  }
  second = ranks[0]->vote({1, 1}, soon());
  testing::expect_refused(second, ErrorCode::kState);
  EXPECT_TRUE(ranks[1]->vote({1, 1}, soon()).has_value());
  first.join();
}

TEST_P(Votes, StepsThatGoOnElsewhereAreNoticedAtOnce) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  run_ranks(3, [&](int rank) {
    Transport& self = *ranks[static_cast<std::size_t>(rank)];
    self.arrive(rank == 1 ? 40 : 0);
    std::vector<std::byte> got(1);
    testing::expect_refused(self.wait(self.post_recv((rank + 1) % 3, 1, got), soon()), ErrorCode::kMismatch,
                            {"step 40", "step 0"});
  });
}

// As if only one rank had loaded a checkpoint.
TEST_P(Votes, AJumpOfOneRankAloneIsNoticedAtOnce) {
  for (const int jumper : {0, 1}) {
    Ranks ranks = connect_ranks(GetParam(), 2);
    run_ranks(2, [&](int rank) {
      Transport& self = *ranks[static_cast<std::size_t>(rank)];
      for (const std::uint64_t step : {10u, 11u}) {
        self.arrive(step);
        ASSERT_TRUE(self.vote({step, 1}, soon()).has_value());
      }
      const std::uint64_t next = rank == jumper ? 5 : 12;
      self.arrive(next);
      const auto ballots = self.vote({next, 1}, soon());
      EXPECT_EQ(self.last_commit().step, 11u);
      if (ballots) {  // they were faster than the news: and differ
        EXPECT_FALSE(ballots->front() == ballots->back());
      } else {
        testing::expect_refused(ballots, ErrorCode::kMismatch, "step 5");
        EXPECT_EQ(ballots.error().last_committed_step, 11u);
      }
    });
  }
}

TEST_P(Votes, AJumpOfAllRanksIsAllowed) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  run_ranks(3, [&](int rank) {
    Transport& self = *ranks[static_cast<std::size_t>(rank)];
    for (const std::uint64_t step : {10u, 11u, 3u, 4u, 90u}) {
      self.arrive(step);
      self.arrive(step);  // a second bucket
      const auto ballots = self.vote({step, 1}, soon());
      ASSERT_TRUE(ballots.has_value()) << ballots.error().message;
    }
  });
}

// The others wait longer than their deadline for a rank that answers.
TEST_P(Votes, ALateRankIsWaitedForAsLongAsItAnswers) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  for (const auto& rank : ranks) rank->set_arrival_timeout(60s);
  run_ranks(3, [&](int rank) {
    Transport& self = *ranks[static_cast<std::size_t>(rank)];
    if (rank == 2) std::this_thread::sleep_for(5s);  // busy elsewhere, for more than twice the deadline
    self.arrive(0);
    const auto ballots = self.vote({0, 1}, in(2s));
    EXPECT_TRUE(ballots.has_value()) << ballots.error().message;
  });
}

TEST_P(Votes, ALateRankIsNotWaitedForForEver) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  ranks[0]->set_arrival_timeout(4s);
  ranks[0]->arrive(0);
  const Deadline began = Clock::now();
  testing::expect_refused(ranks[0]->vote({0, 1}, in(2s)), ErrorCode::kTimeout, 1,
                          {"has not arrived", "arrival_timeout"});
  EXPECT_GE(Clock::now() - began, 4s);
}

// It limits the whole wait and is not added to the deadline: one that ends earlier has no effect.
TEST_P(Votes, AnArrivalTimeoutBelowTheDeadlineChangesNothing) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  ranks[0]->set_arrival_timeout(1ms);
  ranks[0]->arrive(0);
  const Deadline began = Clock::now();
  const auto ballots = ranks[0]->vote({0, 1}, in(2s));
  ASSERT_FALSE(ballots.has_value());
  EXPECT_EQ(ballots.error().suspect, 1);
  EXPECT_GE(Clock::now() - began, 2s);
}

// Patience is for ranks that have not arrived: one that has, and does not send, meets the deadline.
TEST_P(Votes, ARankThatHasArrivedHasTheDeadlineOnly) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  for (const auto& rank : ranks) rank->set_arrival_timeout(600s);
  ranks[0]->arrive(0);
  ranks[1]->arrive(0);
  std::vector<std::byte> got(1);
  testing::expect_refused(ranks[0]->wait(ranks[0]->post_recv(1, 1, got), in(2s)), ErrorCode::kTimeout,
                          "timeout");
}

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Rank 0 of a mesh of two; the test itself is rank 1, and writes to the streams directly.
struct BarePeer {
  BarePeer() {
    std::vector<PeerSockets> sockets(2);
    for (auto* pair : {&data, &control}) {
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair->data()), 0);
      EXPECT_EQ(::fcntl((*pair)[0], F_SETFL, O_NONBLOCK), 0);
    }
    sockets[1].data = GuardedFd::open([this] { return data[0]; });
    sockets[1].control = GuardedFd::open([this] { return control[0]; });
    rank = std::move(*make_mesh({}, std::move(sockets), {}));
  }
  ~BarePeer() {
    rank.reset();
    ::close(data[1]);
    ::close(control[1]);
  }
  BarePeer(const BarePeer&) = delete;
  BarePeer& operator=(const BarePeer&) = delete;

  bool say(const std::vector<std::byte>& bytes) const {
    return ::send(control[1], bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0;
  }
  // What the rank's next wait ends with when it has heard these.
  Error failure_after(const std::vector<ControlMessage>& messages) const {
    std::vector<std::byte> bytes;
    for (const ControlMessage& message : messages) append_control_message(message, 2, bytes);
    EXPECT_TRUE(say(bytes));
    std::vector<std::byte> got(1);
    const auto result = rank->wait(rank->post_recv(1, 1, got), soon());
    EXPECT_FALSE(result.has_value());
    return result ? Error{} : result.error();
  }

  std::array<int, 2> data{};
  std::array<int, 2> control{};
  std::unique_ptr<Transport> rank;
};

// A peer that floods its control stream neither delays a deadline nor uses up memory.
TEST(ControlFlood, IsReadInSmallBites) {
  BarePeer peer;
  std::vector<std::byte> news;
  while (news.size() < 60000) append_control_message(Waiting{0, 1}, 2, news);
  std::thread flood([&] {
    while (peer.say(news)) continue;
  });
  const std::uint64_t before = resident_bytes();
  std::vector<std::byte> got(1);
  const auto result = peer.rank->wait(peer.rank->post_recv(1, 1, got), in(3s));
  EXPECT_GT(peer.rank->traffic().bytes_received, std::uint64_t{1} << 20);  // it was a flood
  EXPECT_LT(peer.rank->traffic().bytes_received, std::uint64_t{200} << 20);
  EXPECT_LT(resident_bytes(), before + (std::uint64_t{64} << 20));
  peer.rank.reset();
  flood.join();
  testing::expect_refused(result, ErrorCode::kTimeout);
}

// Whatever a peer reports about a failure, the error names a rank and has a text.
TEST(ControlMessages, AnAbortWithoutWordsGetsSome) {
  for (const int origin : {-1, 0, 1}) {
    const Error error = BarePeer().failure_after({Abort{{ErrorCode::kAborted, ""}, origin}});
    EXPECT_EQ(error.suspect, 1);
    EXPECT_TRUE(has(error, "rank 1 reports: a failure, and gives no reason")) << error.message;
  }
}

// After a failure, a rank that has not announced its verdict counts as unheard, however this rank has reached
// its own.
TEST(ControlMessages, ARankWithoutAVerdictIsUnheard) {
  const Abort abort{{ErrorCode::kAborted, "enough", 1}, 1};
  const RankSet nobody(2);
  const std::vector<std::vector<ControlMessage>> silent_or_elsewhere{
      {abort}, {abort, Verdict{1, nobody}}, {Goodbye{1}, abort}};
  const std::vector<std::vector<ControlMessage>> heard{{abort, Verdict{0, nobody}}, {Goodbye{0}, abort}};
  const auto unheard_after = [](const std::vector<ControlMessage>& messages) {
    const BarePeer peer;
    (void)peer.failure_after(messages);
    return peer.rank->last_commit().unheard;
  };
  for (const auto& messages : silent_or_elsewhere) EXPECT_EQ(unheard_after(messages), std::vector<int>{1});
  for (const auto& messages : heard) EXPECT_EQ(unheard_after(messages), std::vector<int>{});
}

// As if only one rank of the mesh had called set_optional.
TEST(ControlMessages, ADepartureWhereNobodyIsOptionalIsItsSendersFault) {
  for (const int dropped : {0, 1}) {
    const Error error = BarePeer().failure_after({Dropped{dropped, {ErrorCode::kPeerLost, "it was killed"}}});
    testing::expect_error(error, ErrorCode::kMismatch, 1);
    const std::string name = "rank " + std::to_string(dropped);
    EXPECT_TRUE(has(error, "rank 1 has dropped " + name + ", which is not optional on rank 0"))
        << error.message;
    EXPECT_TRUE(has(error, "it was killed")) << error.message;
  }
}

}  // namespace
}  // namespace deltawire::test::vote_test
