// Unit tests of WaitAnnouncer: what a rank announces about its waits, and how it handles announcements.
#include "transport/mesh/mesh_parts_testing.h"

namespace deltawire::test::wait_announcer_test {
namespace {

using namespace std::chrono_literals;
using Said = std::vector<ControlMessage>;

constexpr Deadline kStart{1h};

// Rank 0 of three, which waits for both others, longer for rank 1.
class Announced : public ::testing::Test {
 protected:
  Operation& receive_from(int rank) {
    Operation& posted = operations_.add();
    posted.peer = rank;
    return posted;
  }

  MemoryLinks links_{0, 3};
  Peers peers_{0, links_.take()};
  OperationTable operations_;
  Waiters waiters_{operations_};
  StepSequence steps_{peers_};
  WaitAnnouncer announcer_{peers_, waiters_, steps_};
  ListedWaiter longer_{waiters_, receive_from(1), kStart, kStart + 10s};
  ListedWaiter shorter_{waiters_, receive_from(2), kStart, kStart + 10s};
};

TEST_F(Announced, TheAwaitedRanksAreSentToAllAndEachMayAnswer) {
  announcer_.ask(shorter_.waiter, kStart + 5s);
  EXPECT_TRUE(shorter_.waiter.announced);
  EXPECT_EQ(shorter_.waiter.asked_at, kStart + 5s);
  EXPECT_EQ(links_.said_to(1), Said{(Waiting{2, 0})});
  EXPECT_EQ(links_.said_to(2), Said{(Waiting{2, 0})});
  announcer_.ask(shorter_.waiter, kStart + 6s);
  EXPECT_EQ(links_.said_to(1), Said{(Waiting{2, 0})}) << "who is asked again is told again";
}

TEST_F(Announced, TheLongestWaitThatGoesOnIsSaidAndOnlyWhenItChanges) {
  announcer_.update();
  EXPECT_EQ(links_.said_to(1), Said{}) << "none is worth it yet";
  longer_.waiter.announced = shorter_.waiter.announced = true;
  announcer_.update();
  announcer_.update();
  EXPECT_EQ(links_.said_to(1), Said{(Waiting{1, 0})});
  longer_.waiter.operation->done = true;
  announcer_.update();
  EXPECT_EQ(links_.said_to(1), Said{(Waiting{2, 0})});
  shorter_.waiter.operation->done = true;
  announcer_.update();
  EXPECT_EQ(links_.said_to(1), Said{(Waiting{-1, 0})});
}

TEST_F(Announced, RanksThatWaitAreAnsweredWithThePlace) {
  (void)steps_.arrive(3);
  (void)links_.said_to(1);
  EXPECT_FALSE(announcer_.anyone_waits());
  announcer_.on_waiting(peers_[1], Waiting{2, 7});
  EXPECT_TRUE(announcer_.anyone_waits());
  EXPECT_EQ(peers_[1].place, 7u);
  EXPECT_EQ(links_.said_to(1), Said{Here{1}});
  announcer_.on_waiting(peers_[1], Waiting{-1, 8});
  EXPECT_FALSE(announcer_.anyone_waits());
  EXPECT_EQ(peers_[1].place, 8u);
  EXPECT_EQ(links_.said_to(1), Said{}) << "it asks for nothing";
}

TEST_F(Announced, AnswersSayWhoAcknowledgesNothing) {
  links_.control(2).unacknowledged_bytes = 1;
  announcer_.ask(longer_.waiter, kStart);
  (void)links_.said_to(1);
  peers_[1].heard_at = kStart + 400ms;
  announcer_.on_waiting(peers_[1], Waiting{0, 0});
  EXPECT_EQ(links_.said_to(1), Said{(Here{0, -1})}) << "it may be on its way";
  peers_[1].heard_at = kStart + 600ms;
  announcer_.on_waiting(peers_[1], Waiting{0, 0});
  EXPECT_EQ(links_.said_to(1), Said{(Here{0, 2})});
}

TEST_F(Announced, ARankMovesWhenItsWaitEnds) {
  peers_[1].heard_at = kStart + 1s;
  announcer_.on_waiting(peers_[1], Waiting{2, 0});
  EXPECT_EQ(peers_[1].moved_at, Deadline{}) << "it has only begun";
  peers_[1].heard_at = kStart + 2s;
  announcer_.on_waiting(peers_[1], Waiting{2, 0});
  EXPECT_EQ(peers_[1].moved_at, Deadline{}) << "it asks once more";
  announcer_.on_waiting(peers_[1], Waiting{0, 0});
  EXPECT_EQ(peers_[1].moved_at, kStart + 2s);
  peers_[1].heard_at = kStart + 3s;
  announcer_.on_waiting(peers_[1], Waiting{-1, 0});
  EXPECT_EQ(peers_[1].moved_at, kStart + 3s);
}

TEST_F(Announced, AllWaitsAreAnnouncedOnce) {
  announcer_.ask(longer_.waiter, kStart + 1s);
  announcer_.announce_all(kStart + 2s);
  EXPECT_EQ(longer_.waiter.asked_at, kStart + 1s);
  EXPECT_EQ(shorter_.waiter.asked_at, kStart + 2s);
}

TEST_F(Announced, AChainIsFollowedUntilSomebodyIsGone) {
  announcer_.on_waiting(peers_[1], Waiting{2, 0});
  EXPECT_EQ(announcer_.follow(1).suspect, 2);
  EXPECT_EQ(announcer_.follow(1).chain, (std::vector{1, 2}));
  announcer_.on_gone(1);
  EXPECT_EQ(announcer_.follow(1).suspect, 1);
  announcer_.on_waiting(peers_[2], Waiting{0, 0});
  EXPECT_TRUE(announcer_.follow(2).cycle);
}

TEST_F(Announced, WhetherItIsAcknowledgedIsWatchedFromTheAsking) {
  links_.control(1).unacknowledged_bytes = 1;
  announcer_.ask(longer_.waiter, kStart);
  EXPECT_EQ(peers_[1].control.unacknowledged_for(kStart + 3s), 3s);
  EXPECT_EQ(peers_[2].control.unacknowledged_for(kStart + 3s), 0s);
}

}  // namespace
}  // namespace deltawire::test::wait_announcer_test
