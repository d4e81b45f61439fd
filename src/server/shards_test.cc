// Which server owns what.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "deltawire/server.h"

namespace deltawire {
namespace {

std::vector<Named> model_of(const std::vector<std::uint64_t>& counts) {
  std::vector<Named> model;
  for (const std::uint64_t count : counts) model.push_back({"t", {.count = count}});
  return model;
}

TEST(Shards, CoverTheModelOnceInOrder) {
  const std::vector<std::uint64_t> counts = {1, 0, 500000, 16384, 16385, 20000000, 7};
  for (const int servers : {1, 2, 3, 8}) {
    const auto parts = serve_parts(model_of(counts), servers);
    ASSERT_TRUE(parts);
    std::vector<std::uint64_t> covered(counts.size(), 0);
    std::size_t last = 0;
    for (const ServedPart& part : *parts) {
      EXPECT_GE(part.tensor, last);
      last = part.tensor;
      EXPECT_EQ(part.first, covered[part.tensor]);
      EXPECT_GT(part.count, 0U);
      EXPECT_LE(part.count, 15728640U);
      covered[part.tensor] += part.count;
      EXPECT_LT(part.server, servers);
    }
    EXPECT_EQ(covered, counts);
  }
}

TEST(Shards, AreBalancedToOnePart) {
  const std::vector<std::uint64_t> counts = {3000000, 10, 64, 200000, 1000000, 50};
  for (const int servers : {2, 3, 5}) {
    const auto parts = serve_parts(model_of(counts), servers);
    ASSERT_TRUE(parts);
    std::vector<std::uint64_t> load(static_cast<std::size_t>(servers), 0);
    std::uint64_t longest = 0;
    for (const ServedPart& part : *parts) {
      load[static_cast<std::size_t>(part.server)] += part.count;
      longest = std::max(longest, part.count);
    }
    EXPECT_LE(std::ranges::max(load) - std::ranges::min(load), longest);
    EXPECT_LE(longest, 4200124U / (4 * static_cast<std::uint64_t>(servers)) + 320);
  }
}

TEST(Shards, DealOutTheLargestFirst) {
  const auto parts = serve_parts(model_of({10, 10, 30}), 2);
  ASSERT_TRUE(parts);
  EXPECT_EQ((*parts)[0].server, 1);
  EXPECT_EQ((*parts)[1].server, 1);
  EXPECT_EQ((*parts)[2].server, 0);
}

TEST(Shards, DealOutEqualOnesInTheModelsOrder) {
  const auto parts = serve_parts(model_of({10, 10, 10, 10}), 3);
  ASSERT_TRUE(parts);
  std::vector<int> owners;
  for (const ServedPart& part : *parts) owners.push_back(part.server);
  EXPECT_EQ(owners, (std::vector<int>{0, 1, 2, 0}));
}

TEST(Shards, LeaveTensorsOfOneServerWhole) {
  const auto parts = serve_parts(model_of({3000000, 10}), 1);
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->size(), 2U);
}

TEST(Shards, RefuseWhatAFrameCannotName) {
  EXPECT_EQ(serve_parts(model_of({1}), 0).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(serve_parts(model_of(std::vector<std::uint64_t>(65536, 1)), 1));
  EXPECT_EQ(serve_parts(model_of(std::vector<std::uint64_t>(65537, 1)), 1).error().code, ErrorCode::kLimit);
}

}  // namespace
}  // namespace deltawire
