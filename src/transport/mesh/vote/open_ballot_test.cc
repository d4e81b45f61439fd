// Unit tests of OpenBallot: votes, in any order, and what they say.
#include <gtest/gtest.h>

#include "transport/mesh/vote/agreement.h"

namespace deltawire::test::open_ballot_test {
namespace {

using Outcome = OpenBallot::Outcome;

constexpr Ballot kOne{4, 17};
constexpr Ballot kOther{4, 18};

RankSet ranks(std::initializer_list<int> members) {
  RankSet set(3);
  for (const int rank : members) set.add(rank);
  return set;
}

TEST(OpenBallot, CountsIfAllVotesAreEqual) {
  OpenBallot ballot(0, 3);
  EXPECT_EQ(ballot.outcome(), Outcome::kNone);
  EXPECT_TRUE(ballot.take(2, {0, kOne})) << "before this rank does";
  EXPECT_FALSE(ballot.is_pending());
  ballot.cast(kOne);
  EXPECT_TRUE(ballot.is_pending());
  EXPECT_EQ(ballot.first_missing(), 1);
  EXPECT_TRUE(ballot.take(1, {0, kOne}));
  EXPECT_EQ(ballot.first_missing(), -1);
  ballot.count();
  EXPECT_EQ(ballot.outcome(), Outcome::kUnanimous);
  EXPECT_EQ(ballot.number(), 1u);
  EXPECT_FALSE(ballot.has_vote_of(0) || ballot.has_vote_of(1) || ballot.has_vote_of(2));
}

TEST(OpenBallot, IsSplitWhereOneDiffers) {
  OpenBallot ballot(0, 2);
  ballot.cast(kOne);
  EXPECT_TRUE(ballot.take(1, {0, kOther}));
  ballot.count();
  EXPECT_EQ(ballot.outcome(), Outcome::kSplit);
  EXPECT_TRUE(ballot.is_pending());
  EXPECT_EQ(ballot.of(1), kOther);
  EXPECT_EQ(ballot.number(), 0u);
}

// A rank votes once, and on the next ballot only after this one counts.
TEST(OpenBallot, VotesOutOfTurnAreRefused) {
  OpenBallot ballot(0, 2);
  EXPECT_FALSE(ballot.take(1, {1, kOne})) << "this rank has not voted on the one before";
  EXPECT_TRUE(ballot.take(1, {0, kOne}));
  EXPECT_FALSE(ballot.take(1, {0, kOne})) << "twice";
  ballot.cast(kOne);
  EXPECT_FALSE(ballot.take(1, {2, kOne}));
  EXPECT_TRUE(ballot.take(1, {1, kOther})) << "which says that the first one was unanimous";
  EXPECT_EQ(ballot.outcome(), Outcome::kUnanimous);
  EXPECT_EQ(ballot.number(), 1u);
  EXPECT_TRUE(ballot.has_vote_of(1));
  EXPECT_TRUE(ballot.take(1, {0, kOne})) << "too late to say anything";
}

TEST(OpenBallot, KnowsWhoHasVotedAndWhetherTheVotesAreEqual) {
  OpenBallot ballot(0, 3);
  ballot.cast(kOne);
  EXPECT_EQ(ballot.knowledge(), (Knowledge{0, ranks({0}), kOne, false}));
  EXPECT_TRUE(ballot.take(2, {0, kOther}));
  EXPECT_EQ(ballot.knowledge().voters, ranks({0, 2}));
  EXPECT_TRUE(ballot.knowledge().split);
}

TEST(OpenBallot, ThatIsRevertedIsVotedOnAgainWithItsNumber) {
  OpenBallot ballot(0, 2);
  ballot.cast(kOne);
  ballot.close(Outcome::kReverted);
  EXPECT_FALSE(ballot.is_pending() || ballot.has_vote_of(0));
  EXPECT_EQ(ballot.number(), 0u);
}

}  // namespace
}  // namespace deltawire::test::open_ballot_test
