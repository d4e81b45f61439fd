// Unit tests of SettleRounds: when a round is complete, and when it is the last.
#include <gtest/gtest.h>

#include "transport/mesh/vote/agreement.h"

namespace deltawire::test::settle_rounds_test {
namespace {

constexpr Ballot kBallot{4, 17};

RankSet ranks(std::initializer_list<int> members) {
  RankSet set(3);
  for (const int rank : members) set.add(rank);
  return set;
}

Knowledge votes_of(std::initializer_list<int> voters) {
  return {0, ranks(voters), kBallot, false};
}

TEST(SettleRounds, SayWhatIsKnownAndAreNumbered) {
  SettleRounds rounds(0, 3);
  EXPECT_EQ(rounds.begin(votes_of({0}), ranks({2})), (SettleRound{1, votes_of({0}), ranks({2})}));
  EXPECT_EQ(rounds.begin(votes_of({0, 1}), ranks({})), (SettleRound{2, votes_of({0, 1}), ranks({})}));
}

TEST(SettleRounds, AreCompleteWhenAllHaveAnsweredButTheAbsent) {
  SettleRounds rounds(0, 3);
  (void)rounds.begin(votes_of({0}), ranks({}));
  EXPECT_FALSE(rounds.has_answered(1));
  EXPECT_TRUE(rounds.add(1, {1, votes_of({1}), ranks({})}));
  EXPECT_TRUE(rounds.has_answered(1));
  EXPECT_FALSE(rounds.is_complete(ranks({})));
  EXPECT_TRUE(rounds.is_complete(ranks({2})));
  EXPECT_TRUE(rounds.add(2, {1, votes_of({2}), ranks({})}));
  EXPECT_TRUE(rounds.is_complete(ranks({})));
}

TEST(SettleRounds, TeachAndEndWhenThereIsNothingToLearn) {
  SettleRounds rounds(0, 3);
  Knowledge known = votes_of({0});
  (void)rounds.begin(known, ranks({2}));
  EXPECT_TRUE(rounds.add(1, {1, votes_of({1}), ranks({2})}));
  EXPECT_FALSE(rounds.end(known, ranks({2}))) << "they knew different things";
  EXPECT_EQ(known, votes_of({0, 1}));
  (void)rounds.begin(known, ranks({2}));
  EXPECT_FALSE(rounds.has_answered(1)) << "an answer serves one round";
  EXPECT_TRUE(rounds.add(1, {2, known, ranks({2})}));
  EXPECT_TRUE(rounds.end(known, ranks({2})));
}

TEST(SettleRounds, AreNotTheLastWhereTheAbsentDiffer) {
  const Knowledge known = votes_of({0, 1});
  for (const bool here : {true, false}) {
    SettleRounds rounds(0, 3);
    Knowledge merged = known;
    (void)rounds.begin(known, ranks({}));
    EXPECT_TRUE(rounds.add(1, {1, known, here ? ranks({}) : ranks({2})}));
    EXPECT_TRUE(rounds.add(2, {1, known, ranks({})}));
    EXPECT_FALSE(rounds.end(merged, here ? ranks({2}) : ranks({}))) << here;
  }
}

// A rank is at most one round ahead; what it sent in earlier rounds is obsolete.
TEST(SettleRounds, HoldTheNextAndForgetThePast) {
  SettleRounds rounds(0, 3);
  (void)rounds.begin(votes_of({0}), ranks({}));
  EXPECT_TRUE(rounds.add(1, {1, votes_of({1}), ranks({})}));
  EXPECT_TRUE(rounds.add(1, {2, votes_of({1}), ranks({})}));
  EXPECT_FALSE(rounds.add(1, {3, votes_of({1}), ranks({})}));
  (void)rounds.begin(votes_of({0}), ranks({}));
  (void)rounds.begin(votes_of({0}), ranks({}));
  EXPECT_FALSE(rounds.has_answered(1));
}

}  // namespace
}  // namespace deltawire::test::settle_rounds_test
