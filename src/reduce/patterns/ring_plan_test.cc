// docs/reference/format.md, "Parts" and "Buckets and stages", for the ring: what is cut where, which parts
// travel as one message, and the order in which messages come. Numbers, not the plan's own constants: other
// builds must cut alike.
#include "reduce/patterns/ring_plan.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "reduce/patterns/owners.h"

namespace deltawire::ring_plan_test {
namespace {

struct Tensors {
  std::vector<std::string> names;
  std::vector<std::vector<float>> values;
  std::vector<float> staged;

  void add(const std::string& name, std::size_t count) {
    names.push_back(name);
    values.emplace_back(count, 0.0F);
    staged.resize(staged.size() + count);
  }
  std::vector<Named> named() {
    std::vector<Named> all;
    for (std::size_t i = 0; i < names.size(); ++i) {
      all.push_back({names[i], {values[i].data(), values[i].size(), DType::kF32}, 0});
    }
    return all;
  }
  RingPlan plan(int rank, int world) {
    RingPlan made;
    made.cut(named(), rank, world);
    made.place(named(), staged);
    return made;
  }
};

// Elements of each message of a partition.
std::vector<std::uint64_t> sizes(const RingPlan& plan, int owner) {
  std::vector<std::uint64_t> found;
  for (const RingMessage& message : plan.partition(owner)) found.push_back(message.elements);
  return found;
}

using Sizes = std::vector<std::uint64_t>;

// By the page: w begins at rank 1, and its pieces are [0, 533,120) of rank 1, 533,440 elements of rank 2 and
// 533,440 of rank 0. b is rank 0's; a and c are rank 2's.
Tensors of_three_ranks() {
  Tensors tensors;
  tensors.add("w", 1600000);
  tensors.add("b", 300);
  tensors.add("a", 16000);
  tensors.add("c", 400);
  return tensors;
}

TEST(RingPlan, CutsPartitionsIntoMessages) {
  Tensors tensors = of_three_ranks();
  const RingPlan plan = tensors.plan(0, 3);
  EXPECT_EQ(sizes(plan, 1), (Sizes{245760, 245760, 41600}));
  EXPECT_EQ(sizes(plan, 2), (Sizes{245760, 245760, 41920 + 16000 + 400}));
  EXPECT_EQ(sizes(plan, 0), (Sizes{245760, 245760, 41920 + 300}));
  EXPECT_EQ(plan.most_messages(), 3u);
}

TEST(RingPlan, PartsAreThoseOfTheTensorInBothMemories) {
  Tensors tensors = of_three_ranks();
  const RingPlan plan = tensors.plan(2, 3);
  const RingMessage& last = plan.partition(2)[2];
  ASSERT_EQ(last.parts.size(), 3u);
  EXPECT_EQ(last.parts[0].name, "w");
  EXPECT_EQ(last.parts[0].first, 533120u + 2 * 245760);
  EXPECT_EQ(last.parts[0].tensor.values, tensors.staged.data() + 533120 + 2 * 245760);
  EXPECT_EQ(last.own[0].values, tensors.values[0].data() + 533120 + 2 * 245760);
  EXPECT_EQ(last.parts[1].name, "a");
  EXPECT_EQ(last.parts[1].first, 0u);
  EXPECT_EQ(last.parts[1].tensor.values, tensors.staged.data() + 1600000 + 300);
  EXPECT_EQ(last.own[1].values, tensors.values[2].data());
  EXPECT_EQ(last.parts[2].name, "c");
  EXPECT_EQ(last.parts[2].tensor.values, tensors.staged.data() + 1600000 + 300 + 16000);
}

TEST(RingPlan, AMessageHasAtMost245760Elements) {
  const auto messages_of = [](std::initializer_list<std::size_t> counts) {
    Tensors tensors;
    for (const std::size_t count : counts) tensors.add("t" + std::to_string(tensors.names.size()), count);
    return sizes(tensors.plan(0, 1), 0);
  };
  EXPECT_EQ(messages_of({245760}), (Sizes{245760}));
  EXPECT_EQ(messages_of({245761}), (Sizes{245760, 1}));
  EXPECT_EQ(messages_of({245760, 1}), (Sizes{245760, 1}));
  EXPECT_EQ(messages_of({245750, 10}), (Sizes{245760}));
  EXPECT_EQ(messages_of({245750, 11}), (Sizes{245750, 11}));
  EXPECT_EQ(messages_of({100000, 100000, 45760}), (Sizes{245760}));
  EXPECT_EQ(messages_of({100000, 100000, 45761, 7}), (Sizes{200000, 45768}));
  EXPECT_EQ(messages_of({0}), Sizes{});
}

TEST(RingPlan, ThePartitionWithTheMostMessagesCounts) {
  Tensors tensors;
  for (int i = 0; tensors.names.size() < 16; ++i) {
    const std::string name = "layer" + std::to_string(i);
    if (owned_ranges(name, 16000, 3)[0].owner == 0) tensors.add(name, 16000);
  }
  const RingPlan plan = tensors.plan(1, 3);
  EXPECT_EQ(sizes(plan, 0), (Sizes{15 * 16000, 16000}));
  EXPECT_TRUE(plan.partition(2).empty());
  EXPECT_EQ(plan.most_messages(), 2u);
}

// (partition, message, last hop), for each rank of three.
TEST(RingPlan, ArrivalsComeInTheOrderOfTheRing) {
  using Stop = std::pair<int, bool>;
  const auto stops_of = [](std::span<const RingStop> stops) {
    std::vector<Stop> found;
    for (std::size_t i = 0; i < stops.size(); ++i) {
      EXPECT_EQ(stops[i].message, i % 3);
      if (i % 3 == 0) found.emplace_back(stops[i].partition, stops[i].last_hop);
    }
    return found;
  };
  Tensors tensors = of_three_ranks();
  for (int rank = 0; rank < 3; ++rank) {
    const RingPlan plan = tensors.plan(rank, 3);
    const int left = (rank + 2) % 3;
    const int right = (rank + 1) % 3;
    EXPECT_EQ(stops_of(plan.scatter_arrivals()), (std::vector<Stop>{{right, false}, {rank, true}})) << rank;
    EXPECT_EQ(stops_of(plan.gather_arrivals()), (std::vector<Stop>{{left, false}, {right, true}})) << rank;
  }
  const RingPlan alone = tensors.plan(0, 1);
  EXPECT_TRUE(alone.scatter_arrivals().empty());
  EXPECT_TRUE(alone.gather_arrivals().empty());
}

}  // namespace
}  // namespace deltawire::ring_plan_test
