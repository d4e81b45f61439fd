// Means of parts from the messages of ranks that are all in this one thread.
#include "reduce/patterns/part_means.h"

#include <chrono>
#include <memory>

#include <gtest/gtest.h>

#include "reduce/scripted_transport_testing.h"

namespace deltawire::part_means_test {
namespace {

constexpr int kWorld = 12;  // more than are merged at once
constexpr std::uint64_t kDimension = 40;

// Of one list; the tensor in key-value form has two parts.
TensorParts whole(const Named& tensor) {
  const std::uint64_t count = tensor.tensor.elements();
  if (!tensor.tensor.has_keys()) return {{{0, count, 0}}};
  const KeyPartition keys(count, 2);
  return {
      {{keys.first(0), keys.first(1) - keys.first(0), 0}, {keys.first(1), keys.first(2) - keys.first(1), 0}},
      keys};
}

// A rank's input: "d" is dense, "k" has the keys rank and rank + 1.
struct Rank {
  explicit Rank(int number)
      : dense(4, static_cast<float>(number)),
        keys{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number) + 1},
        values{1, 2} {
    named = {{"d", {dense.data(), dense.size(), DType::kF32}},
             {"k", {values.data(), values.size(), DType::kF32, keys.data(), kDimension}}};
  }
  std::vector<float> dense;
  std::vector<std::uint32_t> keys;
  std::vector<float> values;
  std::vector<Named> named;
};

class PartMeansTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tensors.assign(Bucket(receiver.named, std::span(&pair_mean, 1)));
    plan.cut(tensors.all(), 1, {100, 100}, whole);
    open(0);
  }
  void open(std::uint64_t step) {
    run.open({.number = step}, transport, Clock::now() + std::chrono::seconds(10), 0);
    plan.place(tensors.all());
    means.open(0);
  }
  // Message `message` of a rank, added.
  Status add(int rank, std::size_t message, std::uint64_t step) {
    Rank input(rank);
    MessagePlan own;
    own.cut(input.named, 1, {100, 100}, whole);
    const auto sender = *make_channel("fp32");  // small tensors in key-value form travel raw
    const MessageId id{.step = step, .rank = static_cast<std::uint16_t>(rank), .world = kWorld};
    const auto bytes = sender->encode(own.message({0, message}).layout(), id);
    if (!bytes) return forward_error(bytes);
    Status added = means.add(*sender, std::span(&*bytes, 1), {0, message}, {rank, rank, kFirstStage});
    sender->commit();
    return added;
  }
  void add_all(std::uint64_t step) {
    for (std::size_t message = 0; message < 2; ++message) {
      for (int rank = 0; rank < kWorld; ++rank) {
        const Status added = add(rank, message, step);
        ASSERT_TRUE(added) << added.error().message;
      }
      means.sum_up({0, message});
    }
    means.join_pairs();
  }
  void expect_means() {
    const std::vector<float> dense(tensors.mean_of(0).begin(), tensors.mean_of(0).end());
    for (const float mean : dense) EXPECT_NEAR(mean, (kWorld - 1) / 2.0, 1e-5);
    const Pairs& pairs = tensors.pair_means()[0];
    ASSERT_EQ(pairs.keys.size(), kWorld + 1u);
    for (std::size_t i = 0; i < pairs.keys.size(); ++i) {
      EXPECT_EQ(pairs.keys[i], i);
      const double sum = (i < kWorld ? 1 : 0) + (i > 0 ? 2 : 0);
      EXPECT_NEAR(pairs.values[i], sum / kWorld, 1e-5) << i;
    }
  }

  BufferPool pool{std::make_shared<MemoryMeter>(), MemoryMeter::Use::kStaging};
  ScriptedTransport transport{0, kWorld};
  BucketRun run;
  BucketTensors tensors{pool};
  MessagePlan plan;
  Rank receiver{0};
  Pairs pair_mean;
  PartMeans means{run, tensors, plan};
};

TEST_F(PartMeansTest, AreThoseOfAllRanks) {
  EXPECT_TRUE(tensors.means().empty()) << "a bucket that waits needs no staging memory";
  add_all(0);
  expect_means();
  EXPECT_GT(run.report().decode_seconds, 0);
}

TEST_F(PartMeansTest, NothingIsLeftOfTheStepBefore) {
  add_all(0);
  open(1);
  add_all(1);
  expect_means();
}

TEST_F(PartMeansTest, ThoseOfTheOwnerReplaceSums) {
  add_all(0);
  const auto channel = *make_channel("fp32");
  const MessageId id{.step = 0, .rank = 3, .world = kWorld, .stage = kSecondStage};
  std::vector<float> values{9, 8, 7, 6};
  Named part = plan.message({0, 0}).parts[0];
  part.tensor.values = values.data();
  const auto bytes = channel->encode(std::span(&part, 1), id);
  ASSERT_TRUE(bytes);
  const Status replaced = means.replace(*channel, std::span(&*bytes, 1), {0, 0}, {3, 3, kSecondStage});
  ASSERT_TRUE(replaced) << replaced.error().message;
  EXPECT_EQ(std::vector<float>(tensors.mean_of(0).begin(), tensors.mean_of(0).end()), values);
}

TEST_F(PartMeansTest, PairsToEncodeAreTheMeans) {
  for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(add(rank, 1, 0));
  means.sum_up({0, 1});
  const std::vector<Named> parts = means.pairs_of({0, 1});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].tensor.count + parts[1].tensor.count, 4u) << "keys 0 to 3";
  EXPECT_NE(parts[0].tensor.values, nullptr);
}

TEST_F(PartMeansTest, AMessageThatIsNoneBlamesItsSender) {
  const std::vector<std::byte> garbage(100);
  const Bytes piece(garbage);
  const std::span<const Bytes> pieces(&piece, 1);
  for (const std::size_t message : {0U, 1U}) {
    const auto channel = *make_channel("fp32");
    const Status added = means.add(*channel, std::span(&pieces, 1), {0, message}, {5, 5, kFirstStage});
    ASSERT_FALSE(added);
    EXPECT_EQ(added.error().suspect, 5);
    EXPECT_TRUE(added.error().message.starts_with("from rank 5: ")) << added.error().message;
  }
}

}  // namespace
}  // namespace deltawire::part_means_test
