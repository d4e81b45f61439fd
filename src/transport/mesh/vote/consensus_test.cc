// Unit tests of Consensus, votes and the mesh's failure: what is sent to the others, and which waits end.
#include <algorithm>
#include <new>
#include <thread>

#include "transport/mesh/mesh_parts_testing.h"

namespace deltawire::test::consensus_test {
namespace {

using namespace std::chrono_literals;
using Said = std::vector<ControlMessage>;

constexpr Ballot kBallot{4, 17};
const RankSet kNobody(3);

// Rank 0 of three.
class Agreed : public ::testing::Test {
 protected:
  void cast() {
    vote_.kind = Operation::Kind::kVote;
    consensus_.cast(kBallot, vote_);
  }
  std::optional<std::span<const Ballot>> close() {
    Consensus::Lock lock(mutex_);
    return consensus_.close(lock, waiter_);
  }
  void receive(int rank, const AgreementMessage& message) { consensus_.receive(peers_[rank], message); }
  LastCommit last_commit() {
    Consensus::Lock lock(mutex_);
    return consensus_.await_last_commit(lock);
  }

  std::mutex mutex_;
  MemoryLinks links_{0, 3};
  Peers peers_{0, links_.take()};
  OperationTable operations_;
  Waiters waiters_{operations_};
  Driver driver_{open_eventfd(), 0, waiters_};
  Consensus consensus_{peers_, waiters_, driver_};
  Operation vote_;
  Waiter waiter_{.operation = &vote_, .deadline = kNever};
};

TEST_F(Agreed, AVoteThatAllCastCounts) {
  EXPECT_FALSE(consensus_.is_voting());
  cast();
  EXPECT_TRUE(consensus_.is_voting());
  EXPECT_EQ(links_.said_to(1), (Said{Vote{0, kBallot}}));
  receive(1, Vote{0, kBallot});
  EXPECT_FALSE(consensus_.misses_vote_of(1));
  EXPECT_TRUE(consensus_.misses_vote_of(2));
  EXPECT_EQ(vote_.peer, 2) << "whom the wait is for";
  EXPECT_FALSE(consensus_.may_count());
  receive(2, Vote{0, kBallot});
  EXPECT_TRUE(consensus_.may_count());
  EXPECT_FALSE(vote_.done);
  consensus_.count();
  EXPECT_TRUE(vote_.done);
  const auto ballots = close();
  ASSERT_TRUE(ballots);
  EXPECT_TRUE(std::ranges::equal(*ballots, std::vector<Ballot>(3, kBallot)));
  EXPECT_FALSE(consensus_.is_voting());
  EXPECT_EQ(consensus_.decided(), 1u);
  EXPECT_EQ(last_commit().step, 4u);
}

TEST_F(Agreed, VotesThatDifferAreAllThere) {
  cast();
  receive(1, Vote{0, {4, 18}});
  receive(2, Vote{0, kBallot});
  consensus_.count();
  const auto ballots = close();
  ASSERT_TRUE(ballots);
  EXPECT_TRUE(std::ranges::equal(*ballots, std::vector<Ballot>{kBallot, {4, 18}, kBallot}));
  EXPECT_EQ(last_commit().step, kNoStep);
}

TEST_F(Agreed, AVoteOutOfTurnIsItsSendersFault) {
  receive(1, Vote{5, kBallot});
  ASSERT_TRUE(consensus_.failed());
  EXPECT_EQ(consensus_.failure().code, ErrorCode::kCorrupt);
  EXPECT_EQ(consensus_.failure().suspect, 1);
}

TEST_F(Agreed, AFailureReachesAllRanksAndTheFirstWins) {
  Operation message;
  peers_[2].sender.post(message);
  consensus_.fail({ErrorCode::kLimit, "too long", 2}, 0);
  consensus_.fail({ErrorCode::kTimeout, "too late", 1}, 0);
  EXPECT_TRUE(consensus_.failed());
  EXPECT_FALSE(consensus_.is_untold());
  EXPECT_EQ(consensus_.failure().text(), "too long");
  const Said told{Abort{{ErrorCode::kLimit, "too long", 2}, 0}, Verdict{0, kNobody}};
  EXPECT_EQ(links_.said_to(1), told);
  EXPECT_EQ(links_.said_to(2), told);
  EXPECT_TRUE(peers_[2].sender.empty());
}

TEST_F(Agreed, AFailureElsewhereSaysWhoReportsIt) {
  consensus_.fail({ErrorCode::kAborted, "enough", 1}, 2);
  EXPECT_EQ(consensus_.failure().text(), "rank 2 reports: enough");
  EXPECT_EQ(links_.said_to(1).front(), ControlMessage(Abort{{ErrorCode::kAborted, "enough", 1}, 2}));
}

TEST_F(Agreed, AFailureNotifiesEveryWaiter) {
  Operation receive_one;
  ListedWaiter waits(waiters_, receive_one, Clock::now(), kNever);
  bool woken = false;
  std::thread thread([&] {
    Consensus::Lock lock(mutex_);
    waits.waiter.changed.wait_for(lock, 20s, [&] { return consensus_.failed(); });
    woken = consensus_.failed();
  });
  const Deadline began = Clock::now();
  std::this_thread::sleep_for(20ms);
  {
    const Consensus::Lock lock(mutex_);
    consensus_.fail({ErrorCode::kAborted, "enough", 0}, 0);
  }
  thread.join();
  EXPECT_TRUE(woken);
  EXPECT_LT(Clock::now() - began, 15s);
}

TEST_F(Agreed, AFailureWithoutMemoryIsReportedLate) {
  consensus_.fail_without_text(ErrorCode::kNoMemory);
  EXPECT_TRUE(consensus_.failed() && consensus_.is_untold());
  EXPECT_EQ(links_.said_to(1), Said{});
  consensus_.tell_late();
  EXPECT_FALSE(consensus_.is_untold());
  EXPECT_EQ(links_.said_to(1), (Said{Abort{{ErrorCode::kNoMemory, "", 0}, 0}, Verdict{0, kNobody}}));
}

TEST_F(Agreed, WhatThrowsEndsTheMesh) {
  consensus_.or_fail([] {});
  EXPECT_FALSE(consensus_.failed());
  consensus_.or_fail([] { throw std::bad_alloc(); });
  ASSERT_TRUE(consensus_.failed());
  EXPECT_EQ(consensus_.failure().code, ErrorCode::kNoMemory);
  EXPECT_EQ(consensus_.failure().text(), "rank 0 is out of memory");
}

// A rank with an open vote asks what the others know, and takes the verdict of one that knows.
TEST_F(Agreed, AnOpenVoteIsSettledByTheFirstVerdict) {
  for (const std::uint64_t decided : {0u, 1u}) {
    MeshParts rank;
    Operation vote;
    rank.consensus.cast(kBallot, vote);
    rank.consensus.fail({ErrorCode::kPeerLost, "rank 2 is gone", 2}, 0);
    EXPECT_FALSE(vote.done);
    EXPECT_NE(rank.consensus.settle_by(), kNever);
    rank.consensus.receive(rank.peers[1], Verdict{decided, kNobody});
    EXPECT_TRUE(vote.done);
    Waiter waiter{.operation = &vote, .deadline = kNever};
    Consensus::Lock lock(rank.mutex);
    EXPECT_EQ(rank.consensus.close(lock, waiter).has_value(), decided == 1);
    EXPECT_EQ(rank.consensus.failure().last_committed_step, decided == 1 ? 4u : kNoStep);
  }
}

TEST_F(Agreed, WhoSaysNothingIsGivenUpAndUnheard) {
  EXPECT_EQ(consensus_.settle_by(), kNever);
  consensus_.fail({ErrorCode::kAborted, "enough", 0}, 0);
  receive(1, Verdict{0, kNobody});
  const Deadline by = consensus_.settle_by();
  EXPECT_GT(by, Clock::now());
  EXPECT_LE(by, Clock::now() + 3s);
  consensus_.give_up_waiting();
  EXPECT_EQ(consensus_.settle_by(), kNever) << "nobody is waited for any more";
  EXPECT_EQ(last_commit().unheard, std::vector{2});
}

TEST(AgreedByNobody, AnOpenVoteEndsWhenTheRankGivesUpWaiting) {
  MeshParts rank;
  Operation vote;
  rank.consensus.cast(kBallot, vote);
  rank.consensus.fail({ErrorCode::kPeerLost, "rank 2 is gone", 2}, 0);
  EXPECT_FALSE(vote.done);
  rank.consensus.give_up_waiting();
  EXPECT_TRUE(vote.done);
}

TEST_F(Agreed, WhoIsGoneIsNotWaitedFor) {
  consensus_.on_gone(2);
  consensus_.fail({ErrorCode::kPeerLost, "rank 2 is gone", 2}, 0);
  EXPECT_NE(consensus_.settle_by(), kNever);
  consensus_.on_left(1, 0);
  EXPECT_EQ(consensus_.settle_by(), kNever);
  EXPECT_EQ(last_commit().unheard, std::vector{2});
}

TEST_F(Agreed, ARankThatLeavesEndsNothingButIsReported) {
  const auto end = [this] {
    Consensus::Lock lock(mutex_);
    return consensus_.await_end(lock, 1ms);
  };
  EXPECT_FALSE(end());
  peers_[2].said_goodbye = true;
  ASSERT_TRUE(end());
  EXPECT_EQ(end()->text(), "rank 2 left in good order");
  EXPECT_EQ(end()->suspect, 2);
  consensus_.fail({ErrorCode::kAborted, "enough", 0}, 0);
  EXPECT_EQ(end()->text(), "enough");
}

TEST(AgreementProtocol, SendsWhatItSaysBehindTheNewsAndGivesTime) {
  MemoryLinks links(0, 2);
  Peers peers(0, links.take());
  AgreementProtocol protocol(peers);
  protocol.change([](Agreement& next) { next.cast(kBallot); });
  EXPECT_EQ(links.said_to(1), (Said{Vote{0, kBallot}}));
  const ControlMessage news = Here{3};
  const Deadline before = Clock::now();
  protocol.change([](Agreement& next) { next.fail(RankSet(2)); }, &news);
  const Said said = links.said_to(1);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0], news);
  EXPECT_TRUE(std::holds_alternative<SettleRound>(said[1]));
  EXPECT_GE(protocol.settle_by(), before + AgreementProtocol::kSettleTime);
  EXPECT_FALSE(protocol.has_concluded());
  protocol.give_up_waiting();
  EXPECT_TRUE(protocol.has_concluded());
  EXPECT_EQ(protocol.state().outcome(), Agreement::Outcome::kReverted);
}

// A change that throws midway changes nothing, and nothing is sent.
TEST(AgreementProtocol, DoesNothingByHalf) {
  MemoryLinks links(0, 2);
  Peers peers(0, links.take());
  AgreementProtocol protocol(peers);
  EXPECT_THROW(protocol.change([](Agreement& next) {
    next.cast(kBallot);
    throw std::bad_alloc();
  }),
               std::bad_alloc);
  EXPECT_EQ(protocol.state().outcome(), Agreement::Outcome::kNone);
  EXPECT_EQ(links.said_to(1), Said{});
  protocol.change([](Agreement& next) { next.cast(kBallot); });
  EXPECT_EQ(links.said_to(1), (Said{Vote{0, kBallot}}));
}

}  // namespace
}  // namespace deltawire::test::consensus_test
