// One step after another: what is open, what was committed, and what can be looked up.
#include "channel/step_record.h"

#include <string>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"

namespace deltawire {
namespace {

SentPart part_of(std::uint64_t hash, std::uint64_t first) {
  SentPart part;
  part.name_hash = hash;
  part.first = first;
  part.count = 3;
  part.state = SegmentState::kNothing;
  return part;
}

class StepRecordTest : public ::testing::Test {
 protected:
  void send(std::uint64_t step, std::uint64_t hash, std::uint64_t first = 0) {
    record_.open(step);
    record_.reserve(1);
    record_.add(part_of(hash, first));
  }

  StepRecord record_{nullptr};
};

TEST_F(StepRecordTest, OneStepIsOpenAtATime) {
  EXPECT_TRUE(record_.check_closed("saving"));
  EXPECT_TRUE(record_.check_may_open(4));
  record_.open(4);
  EXPECT_TRUE(record_.check_may_open(4));
  testing::expect_refused(record_.check_may_open(5), ErrorCode::kState, "step 4 is open");
  const Status closed = record_.check_closed("saving");
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().message, "a step is open; commit or revert it before saving");
  record_.end();
  EXPECT_TRUE(record_.check_closed("saving"));
  EXPECT_TRUE(record_.check_may_open(5));
}

TEST_F(StepRecordTest, ACommittedStepIsLookedUpUntilTheNext) {
  send(1, 10);
  send(1, 10, 3);
  EXPECT_EQ(record_.parts().size(), 2U);
  EXPECT_EQ(record_.find(10, 0), nullptr);
  record_.commit(true, {});
  EXPECT_TRUE(record_.parts().empty());
  ASSERT_NE(record_.find(10, 3), nullptr);
  EXPECT_EQ(record_.find(10, 3)->first, 3U);
  EXPECT_EQ(record_.find(10, 1), nullptr);
  EXPECT_EQ(record_.find(11, 0), nullptr);
  EXPECT_EQ(record_.uses().size(), 2U);
  send(2, 12);
  record_.commit(true, {});
  EXPECT_EQ(record_.find(10, 0), nullptr);
  EXPECT_NE(record_.find(12, 0), nullptr);
  EXPECT_EQ(record_.uses().size(), 1U);
}

TEST_F(StepRecordTest, AStepThatIsNotKeptLeavesItsUsesAlone) {
  send(1, 10);
  record_.commit(false, {});
  EXPECT_EQ(record_.find(10, 0), nullptr);
  EXPECT_EQ(record_.uses().size(), 1U);
  record_.forget_uses();
  EXPECT_TRUE(record_.uses().empty());
}

TEST_F(StepRecordTest, AStepThatEndsLeavesTheCommittedOne) {
  send(1, 10);
  record_.commit(true, {});
  send(2, 11);
  record_.fold({});
  record_.end();
  EXPECT_TRUE(record_.parts().empty());
  EXPECT_NE(record_.find(10, 0), nullptr);
  EXPECT_EQ(record_.find(11, 0), nullptr);
  EXPECT_EQ(record_.uses().size(), 1U);
}

}  // namespace
}  // namespace deltawire
