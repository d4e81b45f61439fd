// Unit tests of Membership: which rank departs, what ends with it, and what the others are told.
#include "transport/mesh/membership.h"

#include <array>

#include "transport/mesh/mesh_parts_testing.h"

namespace deltawire::test::membership_test {
namespace {

using namespace std::chrono_literals;
using Said = std::vector<ControlMessage>;

constexpr std::array kOptional{2, 3};

// Rank `self` of four, of which 2 and 3 are optional.
struct OneOfFour : MeshParts {
  explicit OneOfFour(int self = 0) : MeshParts(self, 4) { membership.set_optional(kOptional); }
  void expect_failed(ErrorCode code, int suspect, const std::string& words) {
    ASSERT_TRUE(consensus.failed());
    EXPECT_EQ(consensus.failure().code, code);
    EXPECT_EQ(consensus.failure().suspect, suspect);
    EXPECT_TRUE(says(consensus.failure(), words));
  }
};

TEST(Membership, NobodyIsOptionalAtFirst) {
  MeshParts rank;
  EXPECT_FALSE(rank.membership.has_optional());
  EXPECT_FALSE(rank.membership.is_optional() || rank.membership.may_drop(1));
  rank.membership.blame(rank.peers[1], {ErrorCode::kCorrupt, "nonsense", 1});
  EXPECT_TRUE(rank.consensus.failed());
}

TEST(Membership, RequiredRanksDropOptionalOnes) {
  OneOfFour required(0);
  EXPECT_TRUE(required.membership.has_optional());
  EXPECT_FALSE(required.membership.is_optional());
  for (const int other : {-1, 0, 1, 4}) EXPECT_FALSE(required.membership.may_drop(other)) << other;
  EXPECT_TRUE(required.membership.may_drop(2) && required.membership.may_drop(3));
  OneOfFour optional(2);
  EXPECT_TRUE(optional.membership.is_optional());
  EXPECT_FALSE(optional.membership.may_drop(3));
}

TEST(Membership, BlameMakesAnOptionalRankDepartEverywhere) {
  OneOfFour rank;
  Operation& from_it = rank.post(3);
  Operation& from_another = rank.post(2);
  rank.membership.blame(rank.peers[3], {ErrorCode::kCorrupt, "nonsense", 3});
  EXPECT_FALSE(rank.consensus.failed());
  EXPECT_TRUE(from_it.done && from_it.failed);
  EXPECT_FALSE(from_another.done);
  ASSERT_TRUE(rank.peers[3].departure);
  EXPECT_EQ(rank.peers[3].departure->text(), "nonsense");
  for (const int other : {1, 2, 3}) {
    EXPECT_EQ(rank.links.said_to(other), Said{(Dropped{3, {ErrorCode::kCorrupt, "nonsense", 3}})}) << other;
  }
  rank.membership.drop(rank.peers[3], {ErrorCode::kTimeout, "late", 3});
  EXPECT_EQ(rank.peers[3].departure->text(), "nonsense") << "it departs once";
}

TEST(Membership, AnOptionalRankTellsNobody) {
  OneOfFour rank(2);
  rank.membership.blame(rank.peers[3], {ErrorCode::kPeerLost, "gone", 3});
  EXPECT_TRUE(rank.peers[3].departure);
  EXPECT_EQ(rank.links.said_to(0), Said{});
}

TEST(Membership, ADepartureGivesWaitsTheirTimeAgainUnlessARequiredRankIsBlamed) {
  for (const int suspect : {3, 1}) {
    OneOfFour rank;
    const Deadline began = Clock::now();
    const ListedWaiter waits(rank.waiters, rank.post(2), began - 5s, began + 5s);
    rank.membership.drop(rank.peers[3], {ErrorCode::kPeerLost, "gone", suspect});
    EXPECT_EQ(waits.waiter.deadline >= began + 10s, suspect == 3) << suspect;
  }
}

TEST(Membership, WhatARequiredRankDropsIsDroppedHere) {
  OneOfFour rank;
  rank.membership.on_dropped(rank.peers[2], Dropped{3, {ErrorCode::kTimeout, "late"}});
  EXPECT_FALSE(rank.peers[3].departure) << "an optional rank decides nothing";
  rank.membership.on_dropped(rank.peers[1], Dropped{3, {ErrorCode::kTimeout, "late"}});
  ASSERT_TRUE(rank.peers[3].departure);
  EXPECT_EQ(rank.peers[3].departure->text(), "rank 1 reports: late");
  EXPECT_EQ(rank.peers[3].departure->suspect, 3);
  EXPECT_FALSE(rank.consensus.failed());
}

// Rank 1 lives, whomever it tells first that rank 3 has blamed it.
TEST(Membership, WhomADroppedRankHasBlamedIsPassedOn) {
  for (const int suspect : {0, 1}) {
    OneOfFour rank(2);
    const Deadline began = Clock::now();
    const ListedWaiter waits(rank.waiters, rank.post(0), began - 5s, began + 5s);
    rank.membership.on_dropped(rank.peers[1], Dropped{3, {ErrorCode::kTimeout, "late", suspect}});
    ASSERT_TRUE(rank.peers[3].departure);
    EXPECT_EQ(rank.peers[3].departure->suspect, suspect);
    EXPECT_EQ(waits.waiter.deadline >= began + 10s, suspect == 1) << suspect;
  }
}

TEST(Membership, WhoIsDroppedItselfHasFailed) {
  OneOfFour rank(3);
  rank.membership.on_dropped(rank.peers[1], Dropped{3, {ErrorCode::kTimeout, "late"}});
  rank.expect_failed(ErrorCode::kTimeout, 3, "rank 1 has dropped rank 3, this one, and the others go on");
}

TEST(Membership, WhoDropsARequiredRankIsToBlame) {
  OneOfFour rank;
  rank.membership.on_dropped(rank.peers[1], Dropped{0, {ErrorCode::kTimeout, "late"}});
  rank.expect_failed(ErrorCode::kMismatch, 1, "rank 1 has dropped rank 0, which is not optional on rank 0");
}

// Rank 3 blamed rank 1 before it departed; rank 1 lives, and says so by dropping it.
TEST(Membership, WhoWasBlamedAndLivesGivesWaitsTheirTimeAgain) {
  OneOfFour rank;
  const Deadline began = Clock::now();
  const ListedWaiter waits(rank.waiters, rank.post(2), began - 5s, began + 5s);
  rank.membership.drop(rank.peers[3], {ErrorCode::kPeerLost, "gone", 1});
  EXPECT_EQ(waits.waiter.deadline, began + 5s);
  rank.membership.on_dropped(rank.peers[1], Dropped{3, {ErrorCode::kTimeout, "late"}});
  EXPECT_GE(waits.waiter.deadline, began + 10s);
}

}  // namespace
}  // namespace deltawire::test::membership_test
