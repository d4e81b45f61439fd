#include "reduce/patterns/merge_pairs.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace deltawire {
namespace {

TEST(AddPairs, AddsInOrderAndKeepsWhatIsAlone) {
  Pairs sum;
  Pairs spare{{99}, {9.0F}, 1};
  add_pairs(sum, {{1, 5, 7}, {1.0F, -0.0F, 0.25F}, 10}, spare);
  add_pairs(sum, {{0, 5, 9}, {2.0F, 3.0F, -1.0F}, 10}, spare);
  EXPECT_EQ(sum.keys, (std::vector<std::uint32_t>{0, 1, 5, 7, 9}));
  EXPECT_EQ(sum.values, (std::vector<float>{2.0F, 1.0F, 3.0F, 0.25F, -1.0F}));
  add_pairs(sum, {}, spare);
  EXPECT_EQ(sum.keys.size(), 5U);
}

}  // namespace
}  // namespace deltawire
