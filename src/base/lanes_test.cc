#include "base/lanes.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace deltawire {
namespace {

class Lanes : public ::testing::TestWithParam<int> {
 protected:
  Workers workers_{GetParam()};
};

TEST_P(Lanes, EveryIndexIsWorkedOnOnceAndLanesAreNobodyElses) {
  for (const std::size_t lanes : {1U, 2U, 3U}) {
    for (const std::size_t count : {0U, 1U, 2U, 1000U}) {
      std::vector<int> runs(count);
      std::array<std::size_t, 3> of_lane{};  // not atomic: the thread sanitizer sees two in one lane
      EXPECT_TRUE(share_by_lanes(&workers_, lanes, count, [&](std::size_t lane, std::size_t index) {
        ++runs[index];
        ++of_lane[lane];
        return true;
      }));
      EXPECT_EQ(runs, std::vector<int>(count, 1));
      std::size_t all = 0;
      for (std::size_t lane = 0; lane < lanes; ++lane) all += of_lane[lane];
      EXPECT_EQ(all, count);
    }
  }
}

TEST_P(Lanes, AllBeforeTheFirstThatFailsAreDone) {
  for (std::size_t failing = 0; failing < 200; ++failing) {
    std::vector<int> runs(200);
    EXPECT_FALSE(share_by_lanes(&workers_, 3, runs.size(), [&](std::size_t, std::size_t index) {
      ++runs[index];
      return index < failing;
    }));
    for (std::size_t i = 0; i <= failing; ++i) ASSERT_EQ(runs[i], 1) << failing << ", " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, Lanes, ::testing::Values(1, 2, 4));

TEST(Lane, TakesNothingAfterAFailure) {
  std::vector<std::size_t> taken;
  EXPECT_FALSE(share_by_lanes(nullptr, 1, 10, [&](std::size_t, std::size_t index) {
    taken.push_back(index);
    return index != 3;
  }));
  EXPECT_EQ(taken, (std::vector<std::size_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace deltawire
