// Unit tests of ControlReader: each message is handled, in order, and so is the stream's end.
#include <array>

#include "transport/mesh/mesh_parts_testing.h"
#include "transport/mesh/streams.h"

namespace deltawire::test::control_reader_test {
namespace {

using namespace std::chrono_literals;
using Said = std::vector<ControlMessage>;

constexpr Ballot kBallot{4, 17};
const RankSet kNobody(3);

// Rank 0 of three.
class Control : public ::testing::Test, protected MeshParts {
 protected:
  void hear(int rank, const ControlMessage& message) {
    links.say(rank, message);
    control.read(peers[rank]);
  }
};

TEST_F(Control, EachMessageGoesToWhomItConcerns) {
  hear(1, Here{7, 2});
  EXPECT_EQ(peers[1].place, 7u);
  EXPECT_EQ(peers[1].deaf, 2);
  hear(1, Waiting{2, 8});
  EXPECT_EQ(peers[1].place, 8u);
  EXPECT_TRUE(announcer.anyone_waits());
  hear(1, Goodbye{0});
  EXPECT_TRUE(peers[1].said_goodbye);
  EXPECT_FALSE(announcer.anyone_waits());
  EXPECT_FALSE(consensus.failed());
}

TEST_F(Control, WhenAPeerWasHeardIsNoted) {
  const Deadline before = Clock::now();
  control.read(peers[1]);
  EXPECT_LT(peers[1].heard_at, before);
  hear(1, Here{0});
  EXPECT_GE(peers[1].heard_at, before);
}

TEST_F(Control, AnAbortSaysWhoFailedAndWhy) {
  hear(1, Abort{{ErrorCode::kNotFinite, "NaN", 2}, 2});
  ASSERT_TRUE(consensus.failed());
  EXPECT_EQ(consensus.failure().text(), "rank 2 reports: NaN");
  hear(2, Abort{{ErrorCode::kAborted, "later", 1}, 1});
  EXPECT_EQ(consensus.failure().text(), "rank 2 reports: NaN");
}

TEST_F(Control, AnAbortThatNamesItsReporterIsToldAsItIs) {
  const Error told{.code = ErrorCode::kTimeout,
                   .message = "rank 2 waited",
                   .suspect = 1,
                   .reporter = 2,
                   .waits_for = 1,
                   .ranks = {1, 0},
                   .tensor = "w",
                   .advice = "wait"};
  hear(1, Abort{told, 2});
  ASSERT_TRUE(consensus.failed());
  EXPECT_EQ(consensus.failure(), told);
}

// A text that only looks like a rank's name.
TEST_F(Control, AnAbortWhoseTextBeginsLikeARankIsReported) {
  hear(2, Abort{{ErrorCode::kAborted, "rank 2 of the matrix is too low", 2}, 2});
  EXPECT_EQ(consensus.failure().message, "rank 2 reports: rank 2 of the matrix is too low");
}

TEST_F(Control, ASuspectOutsideOfAMeshWithoutNumbersIsItsSender) {
  hear(1, Abort{{ErrorCode::kAborted, "enough", 7}, 1});
  ASSERT_TRUE(consensus.failed());
  EXPECT_EQ(consensus.failure().suspect, 1);
}

// Nobody tells this rank what it has done itself.
TEST_F(Control, AnAbortWithoutOriginOrTextIsItsSenders) {
  hear(1, Abort{{ErrorCode::kAborted, ""}, 0});
  ASSERT_TRUE(consensus.failed());
  EXPECT_EQ(consensus.failure().suspect, 1);
  EXPECT_EQ(consensus.failure().text(), "rank 1 reports: a failure, and gives no reason");
}

TEST_F(Control, AnAbortOfAnOptionalRankEndsThatRankAlone) {
  membership.set_optional(std::array{1});
  hear(1, Abort{{ErrorCode::kNotFinite, "NaN", 2}, 2});
  EXPECT_FALSE(consensus.failed());
  ASSERT_TRUE(peers[1].departure);
  EXPECT_EQ(peers[1].departure->text(), "rank 1 reports: NaN");
}

TEST_F(Control, ADepartureIsRecorded) {
  membership.set_optional(std::array{2});
  hear(1, Dropped{2, {ErrorCode::kTimeout, "late"}});
  EXPECT_TRUE(peers[2].departure);
}

TEST_F(Control, StepsThatGoOnElsewhereEndTheMesh) {
  (void)steps.arrive(7);
  hear(1, Start{9});
  ASSERT_TRUE(consensus.failed());
  EXPECT_EQ(consensus.failure().code, ErrorCode::kMismatch);
}

TEST_F(Control, WhoWaitsIsAskedBackByAllThatWaitHere) {
  ListedWaiter waits(waiters, post(2), Clock::now(), Clock::now() + 10s);
  hear(1, Waiting{2, 0});
  EXPECT_TRUE(waits.waiter.announced);
  EXPECT_EQ(links.said_to(1), (Said{Here{0}, Waiting{2, 0}}));
  EXPECT_GE(waits.waiter.asked_at, peers[1].heard_at) << "what came before is no answer";
}

TEST_F(Control, AfterAFailureWaitsAreNotAnnounced) {
  ListedWaiter waits(waiters, post(2), Clock::now(), Clock::now() + 10s);
  consensus.fail({ErrorCode::kAborted, "enough", 0}, 0);
  (void)links.said_to(1);
  hear(1, Waiting{2, 0});
  EXPECT_EQ(links.said_to(1), Said{Here{0}});
}

TEST_F(Control, AnEndWithoutAFarewellIsBlamed) {
  links.control(1).ended = true;
  control.read(peers[1]);
  ASSERT_TRUE(consensus.failed());
  EXPECT_EQ(consensus.failure().code, ErrorCode::kPeerLost);
  EXPECT_TRUE(says(consensus.failure(), "rank 1 closed its connection without a farewell"));
  EXPECT_TRUE(peers[1].is_gone);
}

TEST_F(Control, AnEndWithAFarewellIsNot) {
  links.control(1).ended = true;
  hear(1, Goodbye{0});
  control.read(peers[1]);
  EXPECT_TRUE(peers[1].is_gone);
  EXPECT_FALSE(consensus.failed());
}

TEST_F(Control, ADamagedStreamIsBlamed) {
  links.control(1).add(100, std::byte{0xEE});
  control.read(peers[1]);
  ASSERT_TRUE(consensus.failed());
  EXPECT_EQ(consensus.failure().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(says(consensus.failure(), "control stream from rank 1 is damaged"));
  // Its own direction may be sound: it learns why, and does not take this rank for dead.
  ASSERT_FALSE(links.said_to(1).empty());
}

TEST_F(Control, BallotsAreCountedWhenAllAreRead) {
  Operation vote;
  consensus.cast(kBallot, vote);
  links.say(1, Vote{0, kBallot});
  links.say(2, Vote{0, kBallot});
  control.read(peers[1]);
  control.count_ballots();
  EXPECT_FALSE(vote.done);
  control.read_all();
  EXPECT_TRUE(vote.done);
  EXPECT_EQ(consensus.decided(), 1u);
}

// Its votes are all here; but so is the news that the others have given it up.
TEST_F(Control, WhatTheOthersHaveSaidComesBeforeTheCount) {
  Operation vote;
  consensus.cast(kBallot, vote);
  links.say(2, Vote{0, kBallot});
  links.say(1, Vote{0, kBallot});
  control.read(peers[1]);
  control.read(peers[2]);
  RankSet frozen(3);
  frozen.add(0);
  links.say(1, Abort{{ErrorCode::kTimeout, "it answers nothing", 0}, 1});
  links.say(1, Verdict{0, frozen});
  control.count_ballots();
  EXPECT_TRUE(consensus.failed());
  EXPECT_EQ(consensus.decided(), 0u);
}

TEST_F(Control, NobodyIsGivenUpBeforeItsTime) {
  consensus.fail({ErrorCode::kAborted, "enough", 0}, 0);
  const Deadline by = consensus.settle_by();
  control.give_up_waiting();
  EXPECT_EQ(consensus.settle_by(), by);
}

}  // namespace
}  // namespace deltawire::test::control_reader_test
