#include "reduce/patterns/owners.h"

#include <array>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "base/property_testing.h"

namespace deltawire::owners_test {
namespace {

TEST(Owners, SmallTensorsAreWhole) {
  for (const int world : {1, 2, 4, 7}) {
    const auto ranges = owned_ranges("conv1.weight", 16383, world);
    ASSERT_EQ(ranges.size(), 1u);
    EXPECT_EQ(ranges[0].count, 16383u);
    EXPECT_LT(ranges[0].owner, world);
  }
  EXPECT_TRUE(owned_ranges("empty", 0, 4).empty());
}

TEST(Owners, LargeTensorsAreSpreadEvenly) {
  const auto ranges = owned_ranges("fc1.weight", 400000, 4);
  ASSERT_EQ(ranges.size(), 4u);
  std::set<int> owners;
  for (const OwnedRange& range : ranges) {
    owners.insert(range.owner);
    EXPECT_NEAR(static_cast<double>(range.count), 100000.0, 320.0);
  }
  EXPECT_EQ(owners.size(), 4u);
}

TEST(Owners, SmallTensorsDoNotPileUpOnOneRank) {
  std::set<int> owners;
  for (int i = 0; i < 64; ++i) owners.insert(owned_ranges("layer" + std::to_string(i), 100, 4)[0].owner);
  EXPECT_EQ(owners.size(), 4u);
}

// Pinned: docs/reference/format.md states the rule, and other builds must cut alike.
TEST(Owners, GoldenCut) {
  const auto ranges = owned_ranges("w", 16384, 3);
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[0].count, 320u * 17);
  EXPECT_EQ(ranges[1].count, 320u * 17);
  EXPECT_EQ(ranges[2].count, 16384u - 320u * 34);
}

// (first, count, owner) as the page alone gives them, worked out by the decoder's XXH64 in tests/decoder.
TEST(Owners, GoldenOwnersAndRanges) {
  using Range = std::array<std::uint64_t, 3>;
  const auto ranges_of = [](std::string_view name, std::uint64_t count, int world) {
    std::vector<Range> ranges;
    for (const OwnedRange& range : owned_ranges(name, count, world)) {
      ranges.push_back({range.first, range.count, static_cast<std::uint64_t>(range.owner)});
    }
    return ranges;
  };
  EXPECT_EQ(ranges_of("fc1.weight", 16384, 7), (std::vector<Range>{{0, 2240, 5},
                                                                   {2240, 2240, 6},
                                                                   {4480, 2560, 0},
                                                                   {7040, 2240, 1},
                                                                   {9280, 2560, 2},
                                                                   {11840, 2240, 3},
                                                                   {14080, 2304, 4}}));
  EXPECT_EQ(ranges_of("fc1.weight", 100000, 4),
            (std::vector<Range>{{0, 24960, 1}, {24960, 24960, 2}, {49920, 24960, 3}, {74880, 25120, 0}}));
  EXPECT_EQ(ranges_of("conv1.weight", 16383, 5), (std::vector<Range>{{0, 16383, 1}}));
  // More ranks than rows: those without a row have no range.
  const auto few = ranges_of("w", 16640, 60);
  ASSERT_EQ(few.size(), 52u);
  EXPECT_EQ(few[0], (Range{0, 320, 44}));
  EXPECT_EQ(few[4], (Range{1280, 320, 48}));
}

PROPERTY(OwnersProperty, CoverEverythingOnceInOrder) {
  const auto count = testing::drawn(1, 2000000);
  const auto world = static_cast<int>(testing::drawn(1, 300));
  std::uint64_t next = 0;
  for (const OwnedRange& range : owned_ranges("tensor", count, world)) {
    HOLDS(range.first == next);
    HOLDS(range.count > 0u);
    HOLDS(range.first % kCutElements == 0u);
    HOLDS(range.owner >= 0 && range.owner < world);
    next += range.count;
  }
  HOLDS(next == count);
}

}  // namespace
}  // namespace deltawire::owners_test
