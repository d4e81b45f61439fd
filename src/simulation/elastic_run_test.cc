// Elastic sessions whose faults are given.
#include "simulation/elastic_run.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace deltawire::simulation::elastic_run_test {
namespace {

using namespace std::chrono_literals;

// Of so many members, without faults, on a fast network.
ElasticPlan calm_elastic(int world) {
  ElasticPlan plan;
  plan.world = world;
  plan.spec = "direct(3lc:s=1.75)";
  plan.steps = 20;
  plan.pause = 100ms;
  plan.timeout = 4s;
  plan.meeting = 60s;
  plan.path = {100us, 10us, 1e9, true};
  plan.buffer = 1'000'000;
  plan.latencies = {10us, 1ms, 20};
  plan.comes.assign(static_cast<std::size_t>(world), 1ms);
  return plan;
}

// The longest change of members that a process which lives has seen, in seconds.
double longest_recovery(const ElasticPlan& plan) {
  Trace trace(false);
  ElasticRun run(plan, trace);
  EXPECT_EQ(run.run(), "") << plan.text();
  double longest = 0;
  for (const auto& life : run.lives()) longest = std::max(longest, life->is_dead ? 0 : life->recovery);
  return longest;
}

constexpr double kSilence = 3;  // seconds, after which a member counts as gone

// The three with the lowest ids, so that each of the others would have them as its host.
TEST(Elastic, WaitsForSilentMembersAtOnce) {
  ElasticPlan plan = calm_elastic(7);
  for (int process = 0; process < 3; ++process) {
    plan.faults.push_back({.kind = ElasticFault::Kind::kPowerOff, .process = process, .at = 1s});
  }
  const double recovery = longest_recovery(plan);
  EXPECT_GT(recovery, kSilence);
  EXPECT_LT(recovery, 1.5 * kSilence);
}

// It freezes within a call while the others meet because a process joins: it may have come, and be asked.
TEST(Elastic, DoesNotWaitLongForTheResidualsOfASilentMember) {
  double longest = 0;
  for (std::uint64_t calls = 300; calls <= 380; calls += 20) {
    ElasticPlan plan = calm_elastic(3);
    plan.timeout = 60s;
    plan.faults = {
        {.kind = ElasticFault::Kind::kJoin, .at = 600ms},
        {.kind = ElasticFault::Kind::kFreeze, .process = 2, .at = 601ms, .calls = calls, .lasts = 20s}};
    longest = std::max(longest, longest_recovery(plan));
  }
  EXPECT_GT(longest, kSilence);
  EXPECT_LT(longest, 2.5 * kSilence);
}

// The second ends the epoch that the first is about to enter, whose door must know it already.
TEST(Elastic, TakesAProcessInWhileAnotherOneConnects) {
  ElasticPlan plan = calm_elastic(4);
  plan.seed = 56;
  plan.steps = 30;
  plan.meeting = 10s;
  plan.latencies.longest = 11ms;
  plan.is_pure = true;
  for (const Clock::duration at : {1000ms, 1056ms}) {
    plan.faults.push_back({.kind = ElasticFault::Kind::kJoin, .at = at});
  }
  (void)longest_recovery(plan);
}

// Of a host that froze, and wakes when its callers have just gone to look for another. One that comes back
// late may be left out; without a look at who is still there all of them met until the time was over.
TEST(Elastic, GoesOnWhereAHostWakesAfterItsCallersHaveGone) {
  const ElasticPlan plan = draw_elastic(901'457, 0);
  Trace trace(false);
  ElasticRun run(plan, trace);
  (void)run.run();
  const auto goes_on = [](const auto& life) { return !life->is_dead && !life->error; };
  EXPECT_GE(std::ranges::count_if(run.lives(), goes_on), 3) << plan.text();
}

// Its ballot was the last, and nobody heard it: it has committed the step alone, and the others call at its
// door.
TEST(Elastic, GoesOnWithoutAHostThatIsAtAnotherStep) {
  std::ptrdiff_t alone = 0;
  for (Clock::duration at = 1s; at < 2s; at += 50ms) {
    ElasticPlan plan = calm_elastic(3);
    plan.pause = 1s;
    plan.timeout = 2s;
    plan.faults = {{.kind = ElasticFault::Kind::kMuteVoter, .at = at, .lasts = 2500ms}};
    Trace trace(false);
    ElasticRun run(plan, trace);
    EXPECT_EQ(run.run(), "") << plan.text();
    const auto ended =
        std::ranges::count_if(run.lives(), [](const auto& life) { return life->error.has_value(); });
    EXPECT_LE(ended, 1);
    alone += ended;
  }
  EXPECT_GT(alone, 0);
}

// They call at the host's door at once, where so many that had not spoken yet used to push each other out.
TEST(Elastic, MeetsAtOnceWhereManyAre) {
  ElasticPlan plan = calm_elastic(72);
  plan.path = {10ms, 1ms, 1e9, true};
  plan.steps = 2;
  plan.beat = 30s;
  plan.faults = {{.kind = ElasticFault::Kind::kKill, .process = 36, .at = 45s}};
  const double recovery = longest_recovery(plan);
  EXPECT_GT(recovery, 0);
  EXPECT_LT(recovery, kSilence);
}

// Some answer too late to be asked first; they waited for the busy one then, while the others went on.
TEST(Elastic, MembersOverLongPathsFindTheOneThatHosts) {
  for (const std::uint64_t seed : {11U, 93U}) {
    ElasticPlan plan = calm_elastic(6);
    plan.seed = seed;
    plan.timeout = 2s;
    plan.meeting = 13s;
    plan.path = {20ms, 40ms, 1e9, true};
    plan.faults = {{.kind = ElasticFault::Kind::kBusy, .process = 3, .at = 429ms, .lasts = 20s}};
    (void)longest_recovery(plan);
  }
}

// The host took it for dead, because it had connected before the host had, and all met once more.
TEST(Elastic, AProcessJoinsOverLongPathsAtTheFirstAttempt) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    ElasticPlan plan = calm_elastic(4);
    plan.seed = seed;
    plan.streams = 4;
    plan.path = {30ms, 60ms, 1e9, true};
    plan.faults = {{.kind = ElasticFault::Kind::kJoin, .at = 1s}};
    Trace trace(false);
    ElasticRun run(plan, trace);
    EXPECT_EQ(run.run(), "") << plan.text();
    EXPECT_EQ(run.lives()[0]->epoch, 1U) << seed;
  }
}

// The others had agreed on a view with both, and could not do without them.
TEST(Elastic, GoesOnWhereTheHostDiesWhileAnotherOneConnects) {
  for (std::uint64_t calls = 1404; calls <= 1428; calls += 8) {
    ElasticPlan plan = calm_elastic(3);
    plan.seed = 500'005'977;
    plan.spec = "direct(fp32)";
    plan.streams = 3;
    plan.pause = 500ms;
    plan.meeting = 25s;
    plan.path = {10'644us, 1'064us, 1e9, true};
    plan.latencies.longest = 11ms;
    plan.faults = {{.kind = ElasticFault::Kind::kJoin, .at = 786ms},
                   {.kind = ElasticFault::Kind::kKill, .process = 0, .at = 803ms, .calls = calls}};
    (void)longest_recovery(plan);
  }
}

// Its calls at their doors are under way when it freezes: whoever it then counted as silent was left out.
TEST(Elastic, AHostThatFrozeDoesNotTakeOthersForSilent) {
  for (std::uint64_t calls = 80; calls <= 100; calls += 4) {
    ElasticPlan plan = calm_elastic(5);
    plan.seed = 3;
    plan.pause = 500ms;
    plan.meeting = 20s;
    plan.is_pure = true;
    plan.faults = {
        {.kind = ElasticFault::Kind::kKill, .process = 1, .at = 1s},
        {.kind = ElasticFault::Kind::kFreeze, .process = 0, .at = 1s, .calls = calls, .lasts = 3060ms}};
    (void)longest_recovery(plan);
  }
}

// It is in the view that the host sends as it wakes up, but has taken the host for dead, and calls again. The
// mesh took 4.2 s to fail, and the 7 s were over.
TEST(Elastic, EndsAMeshThatWaitsForAMemberThatCallsAgain) {
  for (const std::uint64_t seed : {900'151U, 901'133U, 904'314U}) {
    const ElasticPlan plan = draw_elastic(seed, 0);
    ASSERT_EQ(plan.scene, "a host freezes");
    EXPECT_LT(longest_recovery(plan), 7);
  }
}

// A machine that goes down gives its programs some seconds.
TEST(Elastic, LeavesSoonWhereManyAreSilent) {
  ElasticPlan plan = calm_elastic(12);
  plan.beat = 10s;
  for (int process = 1; process < 11; ++process) {
    plan.faults.push_back({.kind = ElasticFault::Kind::kPowerOff, .process = process, .at = 15s});
  }
  plan.faults.push_back({.kind = ElasticFault::Kind::kLeave, .process = 0, .at = 15s});
  Trace trace(false);
  ElasticRun run(plan, trace);
  (void)run.run();
  const Clock::duration took = run.lives()[0]->left - (Deadline(kRunBegins) + 20s);
  EXPECT_LT(took, 4s) << "1 s for all who are told, and 2 s for the connections' farewell";
}

// The thread that steps and the one that aborts both close the door then.
TEST(Elastic, EndsWhereItIsAbortedWhileItsMembersMeet) {
  for (Clock::duration again = 10ms; again <= 400ms; again += 30ms) {
    ElasticPlan plan = calm_elastic(2);
    plan.at_least = 2;
    plan.faults = {{.kind = ElasticFault::Kind::kAbort, .process = 0, .at = 500ms},
                   {.kind = ElasticFault::Kind::kAbort, .process = 1, .at = 500ms + again}};
    (void)longest_recovery(plan);
  }
}

}  // namespace
}  // namespace deltawire::simulation::elastic_run_test
