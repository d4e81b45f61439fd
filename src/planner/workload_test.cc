#include <gtest/gtest.h>

#include "planner/planner_testing.h"

namespace deltawire::planner {
namespace {

std::vector<std::vector<std::string>> names_of(const Workload& workload) {
  std::vector<std::vector<std::string>> names;
  for (const PlanBucket& bucket : workload.buckets) {
    names.emplace_back();
    for (const PlanTensor& tensor : bucket.tensors) names.back().push_back(tensor.name);
  }
  return names;
}

using Names = std::vector<std::vector<std::string>>;

TEST(DdpWorkload, LeNet5AsTorchCutsIt) {
  // What DDP shows to a hook from the second step on: the first bucket is full with fc1.weight.
  const Workload workload = ddp_workload({{"conv1.weight", 500},
                                          {"conv1.bias", 20},
                                          {"conv2.weight", 25000},
                                          {"conv2.bias", 50},
                                          {"fc1.weight", 400000},
                                          {"fc1.bias", 500},
                                          {"fc2.weight", 5000},
                                          {"fc2.bias", 10}},
                                         0.03);
  EXPECT_EQ(names_of(workload), (Names{{"fc2.bias", "fc2.weight", "fc1.bias", "fc1.weight"},
                                       {"conv2.bias", "conv2.weight", "conv1.bias", "conv1.weight"}}));
  EXPECT_EQ(workload.elements(), 431080);
  EXPECT_DOUBLE_EQ(workload.compute_seconds, 0.03);
  // A third forward, half of the rest, all of it.
  EXPECT_DOUBLE_EQ(workload.buckets[0].ready_seconds, 0.02);
  EXPECT_DOUBLE_EQ(workload.buckets[1].ready_seconds, 0.03);
}

TEST(DdpWorkload, LaterBucketsHaveTheirOwnLimit) {
  const std::vector<PlanTensor> model = {{"a", 262144}, {"b", 262144}, {"c", 262144}, {"d", 262144}};
  EXPECT_EQ(names_of(ddp_workload(model, 0)), (Names{{"d"}, {"c", "b", "a"}}));
  EXPECT_EQ(names_of(ddp_workload(model, 0, 2 << 20)), (Names{{"d"}, {"c", "b"}, {"a"}}));
  EXPECT_EQ(names_of(ddp_workload(model, 0, 1)), (Names{{"d"}, {"c"}, {"b"}, {"a"}}));
  const std::vector<PlanTensor> halves = {{"a", 131072}, {"b", 131072}, {"c", 131072}};
  EXPECT_EQ(names_of(ddp_workload(halves, 0)), (Names{{"c", "b"}, {"a"}})) << "the first one holds 1 MiB";
  const std::vector<PlanTensor> single = {{"a", 1}, {"b", 1}, {"c", 1}};
  EXPECT_EQ(names_of(ddp_workload(single, 0, 5)), (Names{{"c", "b"}, {"a"}})) << "4 bytes are too few";
  EXPECT_TRUE(ddp_workload({}, 1).buckets.empty());
}

}  // namespace
}  // namespace deltawire::planner
