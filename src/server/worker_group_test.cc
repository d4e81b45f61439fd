// Dropped workers, and how many pushes a step needs.
#include <string>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "server/served_model.h"

namespace deltawire::server_test {
namespace {

ServerOptions options_with(int backup, int min_workers) {
  ServerOptions options;
  options.servers = 2;
  options.backup = backup;
  options.min_workers = min_workers;
  return options;
}

TEST(WorkerGroup, RanksFollowTheServers) {
  const WorkerGroup group(3, options_with(0, 1));
  EXPECT_EQ(group.size(), 3U);
  EXPECT_EQ(group.rank_of(0), 2);
  EXPECT_EQ(group.rank_of(2), 4);
}

// A dropped worker takes the place of a backup one.
TEST(WorkerGroup, AStepNeedsAllButTheBackupWorkersOrAllThatAreLeft) {
  WorkerGroup group(4, options_with(1, 1));
  EXPECT_EQ(group.needed(), 3U);
  group.drop(0, 5, {ErrorCode::kPeerLost, "gone"});
  EXPECT_EQ(group.needed(), 3U);
  group.drop(2, 6, {ErrorCode::kPeerLost, "gone"});
  EXPECT_EQ(group.needed(), 2U);
  EXPECT_EQ(group.left(), 2U);
  EXPECT_TRUE(group.is_dropped(0));
  EXPECT_FALSE(group.is_dropped(1));
  ASSERT_EQ(group.dropped().size(), 2U);
  EXPECT_EQ(group.dropped()[1].rank, 4);
  EXPECT_EQ(group.dropped()[1].step, 6U);
}

TEST(WorkerGroup, TooFewAreLeftWhenOneLessThanTheMinimumIs) {
  WorkerGroup group(3, options_with(0, 2));
  group.drop(0, 0, {ErrorCode::kPeerLost, "its cable", 2});
  EXPECT_TRUE(group.check_left());
  group.drop(2, 1, {ErrorCode::kTimeout, "its silence", kNoSuspect});
  const Status left = group.check_left();
  testing::expect_refused(left, ErrorCode::kPeerLost, 4);
  for (const char* said : {"1 of 3", "min_workers=2", "rank 4", "its silence"}) {
    EXPECT_NE(left.error().message.find(said), std::string::npos) << left.error().message;
  }
}

TEST(WorkerGroup, TheSuspectOfTheLastLossIsBlamed) {
  WorkerGroup group(2, options_with(0, 2));
  group.drop(0, 0, {ErrorCode::kPeerLost, "its peer", 3});
  EXPECT_EQ(group.check_left().error().suspect, 3);
}

TEST(WorkerGroup, AStepThatTooFewEndSaysWhoWasLost) {
  WorkerGroup group(3, options_with(0, 1));
  EXPECT_EQ(group.ended_amid_step().value().code, ErrorCode::kMismatch);
  group.drop(1, 4, {ErrorCode::kPeerLost, "its cable", kNoSuspect});
  const Error error = group.ended_amid_step().value();
  EXPECT_EQ(error.suspect, 3);
  EXPECT_NE(error.message.find("in the midst of a step"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("its cable"), std::string::npos) << error.message;
}

}  // namespace
}  // namespace deltawire::server_test
