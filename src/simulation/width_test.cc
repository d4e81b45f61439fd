// The simulation of many ranks: what it counts, and that it repeats itself.
#include "simulation/width.h"

#include <gtest/gtest.h>

namespace deltawire::simulation {
namespace {

WidthPlan small_plan(const char* spec) {
  WidthPlan plan;
  plan.spec = spec;
  plan.values = 16 * 1024;
  plan.hosts = {.ranks = 1, .processors = 1};
  plan.line = {.delay = std::chrono::microseconds(50), .bytes_per_second = 1e9};
  return plan;
}

TEST(Width, RepeatsItselfToTheLastEvent) {
  const Width once = simulate_width(small_plan("hierarchical:group=4(3lc)"));
  const Width again = simulate_width(small_plan("hierarchical:group=4(3lc)"));
  EXPECT_EQ(once.error, "");
  EXPECT_EQ(once.hash, again.hash);
  EXPECT_EQ(once.seconds, again.seconds);
  EXPECT_NE(once.hash, simulate_width(small_plan("hierarchical:group=8(3lc)")).hash);
}

// Each of 16 ranks pushes to 15 owners, pulls from them, and sends 15 ballots.
TEST(Width, CountsMessagesAndBallots) {
  const Width direct = simulate_width(small_plan("direct(fp32)"));
  EXPECT_EQ(direct.messages, 30);
  EXPECT_EQ(direct.ballots, 15);
  EXPECT_GT(direct.message_bytes, 2 * 15 * 4 * 1024);
  EXPECT_LT(direct.message_bytes, 2 * 15 * (4 * 1024 + 200));
}

// Lines: 15 sixteenths of the tensor leave every rank twice, in 61 us each time, and three delays.
TEST(Width, ALineTakesItsTime) {
  WidthPlan plan = small_plan("direct(fp32)");
  plan.costs = {0, 0, 0, 0, 0, 0, 0};
  const Width fast = simulate_width(plan);
  EXPECT_GT(fast.seconds, 270e-6);
  EXPECT_LT(fast.seconds, 350e-6);
  plan.line.bytes_per_second /= 100;
  EXPECT_GT(simulate_width(plan).seconds, 50 * fast.seconds);
}

// All ranks' first ballots go to rank 0, their last ones to the last rank, whose line then takes one after
// the other: 15 frames leave each rank, and as many have to arrive when the last of them has left.
TEST(Width, MessagesWaitForEachOtherBeforeTheReceiversLine) {
  WidthPlan plan = small_plan("direct(fp32)");
  plan.costs = {0, 0, 0, 0, 0, 0, 0};
  plan.values = 1;
  plan.line = {.delay = {}, .bytes_per_second = 1e6};
  const double frame = 90e-6;
  EXPECT_GT(simulate_width(plan).seconds, 4 * 15 * frame);
}

// Ranks of one host take turns on its processors.
TEST(Width, ProcessorsAreShared) {
  WidthPlan plan = small_plan("direct(fp32)");
  plan.values = 1;
  const Width alone = simulate_width(plan);
  plan.hosts = {.ranks = 16, .processors = 2};
  const Width shared = simulate_width(plan);
  EXPECT_NEAR(shared.seconds, shared.processor_seconds / 2, shared.seconds / 10);
  EXPECT_GT(shared.seconds, 3 * alone.seconds);
}

}  // namespace
}  // namespace deltawire::simulation
