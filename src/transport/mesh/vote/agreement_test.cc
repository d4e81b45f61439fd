// The agreement in every state that a small mesh can reach.
#include "transport/mesh/vote/agreement.h"

#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "transport/mesh/vote/agreement_worlds_testing.h"

extern "C" {
__attribute__((weak)) void __asan_init();
__attribute__((weak)) void __tsan_init();
}

namespace deltawire::agreement_test {
namespace {

using agreement_worlds::Explorer;
using agreement_worlds::Limits;

// Whether the library under test is sanitized; this file itself may not be.
const bool kSanitized = &__asan_init != nullptr || &__tsan_init != nullptr;

void explore(const Limits& limits) {
  Explorer explorer(limits);
  const std::size_t worlds = explorer.run();
  EXPECT_GT(explorer.ends(), 0u);
  std::printf("%zu worlds, %zu ends, %zu states of a rank\n", worlds, explorer.ends(),
              explorer.local_states());
}

TEST(Agreement, ThreeRanksOneCrash) {
  explore({.world = 3, .crashes = 1});
}

TEST(Agreement, ThreeRanksTwoCrashes) {
  explore({.world = 3, .crashes = 2});
}

TEST(Agreement, ThreeRanksTwoBallots) {
  explore({.world = 3, .crashes = 1, .ballots = 2});
}

TEST(Agreement, ThreeRanksThatMayLeave) {
  explore({.world = 3, .crashes = 1, .may_leave = true});
}

TEST(Agreement, ThreeRanksOneAborts) {
  explore({.world = 3, .crashes = 1, .may_abort = true});
}

TEST(Agreement, ThreeRanksOneVotesUnlikeTheOthers) {
  explore({.world = 3, .crashes = 1, .splits = true});
}

TEST(Agreement, ThreeRanksOneGivesUpOnThoseThatLive) {
  explore({.world = 3, .crashes = 1, .may_abort = true, .false_suspicions = 1});
}

TEST(Agreement, ThreeRanksThatMayLeaveOneGivesUpOnThoseThatLive) {
  explore({.world = 3, .crashes = 1, .may_leave = true, .false_suspicions = 1});
}

TEST(Agreement, ThreeRanksGiveUpOnEachOther) {
  explore({.world = 3, .crashes = 0, .may_abort = true, .false_suspicions = 2});
}

// A living rank with another verdict is among those that a rank has not heard.
TEST(Agreement, ThreeRanksInASplitNetwork) {
  explore({.world = 3, .crashes = 0, .ballots = 2, .near_side = 1});
}

TEST(Agreement, ThreeRanksInASplitNetworkOneCrash) {
  explore({.world = 3, .crashes = 1, .near_side = 1});
}

TEST(Agreement, ThreeRanksInASplitNetworkThatMayLeave) {
  explore({.world = 3, .crashes = 0, .may_leave = true, .near_side = 1});
}

// It wakes up at any point, and gets the others' verdict.
TEST(Agreement, ThreeRanksOneFreezes) {
  explore({.world = 3, .crashes = 0, .ballots = 2, .freezes = true});
}

TEST(Agreement, ThreeRanksOneFreezesOneCrash) {
  explore({.world = 3, .crashes = 1, .freezes = true});
}

// Before or after somebody else said that it is absent.
TEST(Agreement, RanksThatSaidFarewellAtThisStepAreNotAmongTheUnheard) {
  RankSet left(4);
  left.add(2);
  for (const bool farewell_first : {true, false}) {
    Agreement own(0, 4);
    own.cast({0, 2});
    own.fail(RankSet(4));
    if (farewell_first) own.on_left(2, 0);
    EXPECT_TRUE(own.receive(1, SettleRound{1, Knowledge{0, RankSet(4)}, left}));
    if (!farewell_first) own.on_left(2, 0);
    own.on_gone(3);
    EXPECT_FALSE(own.unheard().has(2));
    EXPECT_TRUE(own.unheard().has(3));
  }
  Agreement ahead(0, 4);
  ahead.on_gone(1);
  ahead.on_left(1, 5);
  EXPECT_TRUE(ahead.unheard().has(1)) << "it stands elsewhere";
}

TEST(Agreement, RanksThatAnotherHasGivenUpAreNotWaitedFor) {
  RankSet frozen(3);
  frozen.add(0);  // as this rank may be, for the other
  frozen.add(2);
  for (const bool is_open : {false, true}) {
    Agreement own(0, 3);
    if (is_open) own.cast({0, 2});
    own.fail(RankSet(3));
    EXPECT_FALSE(own.concluded());
    EXPECT_TRUE(own.receive(1, Verdict{0, frozen}));
    EXPECT_TRUE(own.concluded());
    EXPECT_FALSE(own.unheard().has(1));
    EXPECT_TRUE(own.unheard().has(2));
    if (!is_open) continue;
    const auto& verdict = std::get<Verdict>(own.outbox().back());
    EXPECT_TRUE(verdict.absent.has(2));
    EXPECT_FALSE(verdict.absent.has(0)) << "the others count on it";
  }
}

TEST(Agreement, FourRanksOneCrash) {
  if (kSanitized) GTEST_SKIP() << "takes minutes under a sanitizer; three ranks run everywhere";
  explore({.world = 4, .crashes = 1});
}

// Minutes and gigabytes: DELTAWIRE_EXHAUSTIVE=1 turns it on.
TEST(Agreement, FourRanksTwoCrashesExhaustively) {
  if (std::getenv("DELTAWIRE_EXHAUSTIVE") == nullptr) GTEST_SKIP() << "set DELTAWIRE_EXHAUSTIVE=1";
  explore({.world = 4, .crashes = 2});
}

TEST(Agreement, FourRanksInASplitNetworkExhaustively) {
  if (std::getenv("DELTAWIRE_EXHAUSTIVE") == nullptr) GTEST_SKIP() << "set DELTAWIRE_EXHAUSTIVE=1";
  explore({.world = 4, .crashes = 0, .near_side = 2});
}

}  // namespace
}  // namespace deltawire::agreement_test
