// docs/reference/format.md, "Parts" and "Buckets and stages": which parts travel as one message, and where
// their values are.
#include "reduce/patterns/message_plan.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace deltawire::message_plan_test {
namespace {

using Sizes = std::vector<std::uint64_t>;

struct Tensor {
  std::string name;
  std::vector<float> values;
  std::vector<std::uint32_t> keys = {};
  std::uint64_t dimension = 0;

  Named named() {
    return {name,
            {values.data(), values.size(), DType::kF32, keys.empty() ? nullptr : keys.data(), dimension}};
  }
};

std::vector<Named> named(std::vector<Tensor>& tensors) {
  std::vector<Named> all;
  for (Tensor& tensor : tensors) all.push_back(tensor.named());
  return all;
}

// Two owners: the first half of a tensor is owner 0's, the second owner 1's.
TensorParts halves(const Named& tensor) {
  const std::uint64_t count = tensor.tensor.elements();
  if (!tensor.tensor.has_keys()) return {{{0, count / 2, 0}, {count / 2, count - count / 2, 1}}};
  const KeyPartition keys(count, 2);
  return {
      {{keys.first(0), keys.first(1) - keys.first(0), 0}, {keys.first(1), keys.first(2) - keys.first(1), 1}},
      keys};
}

Sizes sizes(const MessagePlan& plan, std::size_t list) {
  Sizes found;
  for (const PartMessage& message : plan.list(list)) found.push_back(message.elements);
  return found;
}

TEST(MessagePlan, SortsPartsIntoTheListsOfTheirOwners) {
  std::vector<Tensor> tensors{{"a", std::vector<float>(10)}, {"b", std::vector<float>(7)}};
  MessagePlan plan;
  plan.cut(named(tensors), 2, {100, 100}, halves);
  ASSERT_EQ(plan.lists(), 2u);
  EXPECT_EQ(sizes(plan, 0), (Sizes{8}));
  EXPECT_EQ(sizes(plan, 1), (Sizes{9}));
  const PartMessage& second = plan.message({1, 0});
  ASSERT_EQ(second.parts.size(), 2u);
  EXPECT_EQ(second.parts[0].name, "a");
  EXPECT_EQ(second.parts[0].first, 5u);
  EXPECT_EQ(second.parts[1].name, "b");
  EXPECT_EQ(second.parts[1].first, 3u);
  EXPECT_EQ(second.parts[1].tensor.count, 4u);
  EXPECT_EQ(second.tensors, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(second.raw_bytes(), 4u * 9);
  EXPECT_EQ(second.hash, MessageLayout::hash_of(second.parts));
}

TEST(MessagePlan, AMessageHasAtMostSoManyElements) {
  const auto messages_of = [](std::initializer_list<std::size_t> counts) {
    std::vector<Tensor> tensors;
    for (const std::size_t count : counts) {
      tensors.push_back({"t" + std::to_string(tensors.size()), std::vector<float>(count)});
    }
    MessagePlan plan;
    plan.cut(named(tensors), 1, {10, 10},
             [](const Named& tensor) { return TensorParts{{{0, tensor.tensor.count, 0}}}; });
    return sizes(plan, 0);
  };
  EXPECT_EQ(messages_of({10}), (Sizes{10}));
  EXPECT_EQ(messages_of({4, 6}), (Sizes{10}));
  EXPECT_EQ(messages_of({4, 7}), (Sizes{4, 7}));
  EXPECT_EQ(messages_of({4, 5, 2, 8}), (Sizes{9, 10}));
  EXPECT_EQ(messages_of({11, 1}), (Sizes{11, 1})) << "alone if it must";
  EXPECT_EQ(messages_of({}), Sizes{});
}

TEST(MessagePlan, FormsDoNotMixAndKeyValuePartsComeLast) {
  std::vector<Tensor> tensors{{"k", {1.0F}, {3}, 6}, {"d", std::vector<float>(4)}};
  MessagePlan plan;
  plan.cut(named(tensors), 2, {100, 5}, halves);
  ASSERT_EQ(plan.list(0).size(), 2u);
  EXPECT_FALSE(plan.message({0, 0}).has_keys());
  EXPECT_TRUE(plan.message({0, 1}).has_keys());
  ASSERT_EQ(plan.keyed().size(), 1u);
  EXPECT_EQ(plan.keyed()[0].tensor, 0u);
  ASSERT_EQ(plan.keyed()[0].parts.size(), 2u);
  EXPECT_EQ(plan.keyed()[0].parts[1].place.list, 1u);
  EXPECT_EQ(plan.keyed()[0].parts[1].place.message, 1u);
}

TEST(MessagePlan, PartsLieWhereTheirTensorsDo) {
  std::vector<Tensor> tensors{{"a", std::vector<float>(10)}, {"b", std::vector<float>(7)}};
  MessagePlan plan;
  plan.cut(named(tensors), 2, {100, 100}, halves);
  EXPECT_EQ(plan.message({1, 0}).parts[1].tensor.values, tensors[1].values.data() + 3);
  std::vector<float> elsewhere(7);
  std::vector<Named> moved = named(tensors);
  moved[1].tensor.values = elsewhere.data();
  plan.place(moved);
  EXPECT_EQ(plan.message({1, 0}).parts[0].tensor.values, tensors[0].values.data() + 5);
  EXPECT_EQ(plan.message({1, 0}).parts[1].tensor.values, elsewhere.data() + 3);
}

TEST(MessagePlan, MeansLieInStagingMemoryAsFloat32) {
  BufferPool pool(std::make_shared<MemoryMeter>(), MemoryMeter::Use::kStaging);
  BucketTensors tensors(pool);
  std::vector<std::uint16_t> halves_of_16_bits(6);
  std::vector<float> other(4);
  const std::vector<Named> bucket{{"a", {other.data(), 4, DType::kF32}},
                                  {"h", {halves_of_16_bits.data(), 6, DType::kF16}}};
  tensors.assign(bucket);
  MessagePlan plan;
  plan.cut(tensors.all(), 2, {100, 100}, halves);
  tensors.stage();
  plan.place_means(tensors);
  const PartMessage& message = plan.message({1, 0});
  EXPECT_EQ(message.parts[1].tensor.dtype, DType::kF16);
  EXPECT_EQ(message.parts[1].tensor.values, halves_of_16_bits.data() + 3);
  EXPECT_EQ(message.means[1].tensor.dtype, DType::kF32);
  EXPECT_EQ(message.means[1].own_dtype(), DType::kF16);
  EXPECT_EQ(message.means[1].tensor.values, tensors.means().data() + 4 + 3);
  EXPECT_EQ(message.mean_layout().hash, message.layout().hash) << "ranks must agree on the tensors' dtypes";
}

TEST(MessagePlan, PairsGoToTheOwnersOfTheirKeysInEveryStep) {
  std::vector<Tensor> tensors{{"k", {1, 2, 3}, {0, 1, 5}, 6}};
  MessagePlan plan;
  plan.cut(named(tensors), 2, {100, 100}, halves);
  const auto pairs_of = [&] {
    std::vector<std::uint64_t> counts;
    for (const std::size_t list : {0U, 1U}) counts.push_back(plan.message({list, 0}).parts[0].tensor.count);
    return counts;
  };
  const KeyPartition keys(6, 2);
  const auto expected_of = [&] {
    std::vector<std::uint64_t> counts(2);
    for (const std::uint32_t key : tensors[0].keys) ++counts[keys.place_of(key).shard];
    return counts;
  };
  EXPECT_EQ(pairs_of(), expected_of());
  tensors[0] = {"k", {1, 2}, {1, 2}, 6};
  plan.place(named(tensors));
  EXPECT_EQ(pairs_of(), expected_of());
  tensors[0] = {"k", {1, 2}, {4, 4}, 6};
  plan.place(named(tensors));
  EXPECT_EQ(pairs_of(), (std::vector<std::uint64_t>{2, 0})) << "illegal keys stay together";
  EXPECT_EQ(plan.message({1, 0}).parts[0].tensor.keys, nullptr) << "nothing of the step before";
}

// What another rank sends may have a pair for each element.
TEST(MessagePlan, OthersMessagesMayBeLonger) {
  std::vector<Tensor> tensors{{"k", {1}, {0}, 5000}, {"d", std::vector<float>(64)}};
  MessagePlan plan;
  plan.cut(named(tensors), 2, {10000, 10000}, halves);
  const auto channel = make_channel("fastsgd");
  ASSERT_TRUE(channel);
  const PartMessage& dense = plan.message({0, 0});
  const PartMessage& pairs = plan.message({0, 1});
  EXPECT_EQ(dense.longest(**channel, 0), (*channel)->message_bound(dense.layout(), 0));
  EXPECT_GT(pairs.longest(**channel, 0), 2500u + (*channel)->message_bound(pairs.layout(), 0));
}

}  // namespace
}  // namespace deltawire::message_plan_test
