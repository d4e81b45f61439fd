// Unit tests of StepSequence: what a rank announces about its steps, and how it compares those of others.
#include "transport/mesh/mesh_parts_testing.h"

namespace deltawire::test::step_sequence_test {
namespace {

using Said = std::vector<ControlMessage>;

class Steps : public ::testing::Test {
 protected:
  std::optional<Error> start(int rank, std::uint64_t step, bool vote_is_missing = false) {
    return steps_.on_start(peers_[rank], Start{step}, vote_is_missing);
  }

  MemoryLinks links_{0, 3};
  Peers peers_{0, links_.take()};
  StepSequence steps_{peers_};
};

TEST_F(Steps, ARestartOfStepsIsAnnounced) {
  EXPECT_FALSE(steps_.arrive(7));
  EXPECT_EQ(links_.said_to(1), Said{Start{7}});
  EXPECT_FALSE(steps_.arrive(7));
  EXPECT_FALSE(steps_.arrive(8));
  EXPECT_EQ(links_.said_to(1), Said{});
  EXPECT_FALSE(steps_.arrive(4));
  EXPECT_EQ(links_.said_to(1), Said{Start{4}});
  EXPECT_EQ(links_.said_to(2), (Said{Start{7}, Start{4}}));
  EXPECT_EQ(steps_.place(), 4u);
}

TEST_F(Steps, ThatBeginElsewhereAreAMismatch) {
  EXPECT_FALSE(steps_.arrive(7));
  EXPECT_FALSE(start(1, 7));
  const auto mismatch = start(2, 9);
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->code, ErrorCode::kMismatch);
  EXPECT_EQ(mismatch->suspect, 2);
  EXPECT_EQ(
      mismatch->text(),
      "rank 2 continues at step 9, rank 0 at step 7; load the same checkpoint on every rank, or on none");
}

TEST_F(Steps, OfAnotherThatArrivedFirstAreComparedWhenThisOneDoes) {
  EXPECT_FALSE(start(1, 9));
  EXPECT_TRUE(steps_.arrive(7));
}

// The peer has voted for step 7 and begins anew: so may this rank, next.
TEST_F(Steps, MayRestartBetweenVoteAndArrival) {
  EXPECT_FALSE(steps_.arrive(7));
  EXPECT_FALSE(start(1, 7));
  steps_.end_step();
  EXPECT_FALSE(start(1, 3));
  EXPECT_FALSE(steps_.arrive(3));
}

TEST_F(Steps, ThatRestartInTheMiddleOfOneAreAMismatch) {
  EXPECT_FALSE(steps_.arrive(7));
  EXPECT_FALSE(start(1, 7));
  EXPECT_FALSE(start(2, 7));
  EXPECT_TRUE(start(1, 3)) << "the step is not voted for";
  steps_.end_step();
  EXPECT_TRUE(start(2, 3, true)) << "the peer has not voted for it";
}

}  // namespace
}  // namespace deltawire::test::step_sequence_test
