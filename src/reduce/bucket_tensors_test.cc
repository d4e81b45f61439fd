// A bucket's tensors and their means, without an exchange.
#include "reduce/bucket_tensors.h"

#include <algorithm>
#include <limits>
#include <memory>

#include <gtest/gtest.h>

namespace deltawire::bucket_tensors_test {
namespace {

// A dense tensor, one in key-value form, and one of 16 bits.
class BucketTensorsTest : public ::testing::Test {
 protected:
  void assign() { known = tensors.assign({named, std::span(&pair_mean, 1)}); }
  void form_means() {
    tensors.stage();
    std::ranges::copy(std::vector<float>{1, 2, 3}, tensors.mean_of(0).begin());
    std::ranges::copy(std::vector<float>{0.5F, 4}, tensors.mean_of(2).begin());
    tensors.pair_means()[0].keys = {5, 9};
    tensors.pair_means()[0].values = {7, 8};
  }

  std::shared_ptr<MemoryMeter> meter = std::make_shared<MemoryMeter>();
  BufferPool pool{meter, MemoryMeter::Use::kStaging};
  std::vector<float> dense = std::vector<float>(3);
  std::vector<std::uint16_t> halves = std::vector<std::uint16_t>(2);
  std::vector<std::uint32_t> keys{5};
  std::vector<float> values{1};
  std::vector<Named> named{{"a", {dense.data(), 3, DType::kF32}},
                           {"k", {values.data(), 1, DType::kF32, keys.data(), 10}},
                           {"h", {halves.data(), 2, DType::kF16}}};
  Pairs pair_mean;
  BucketTensors tensors{pool};
  bool known = false;
};

TEST_F(BucketTensorsTest, AreKnownAgainWhereverTheirValuesLie) {
  assign();
  EXPECT_FALSE(known);
  EXPECT_EQ(tensors.elements(), 3u + 10 + 2);
  EXPECT_EQ(tensors.raw_bytes(), 12u + 40 + 4);
  std::vector<float> elsewhere(3);
  named[0].tensor.values = elsewhere.data();
  EXPECT_TRUE(tensors.same(named));
  assign();
  EXPECT_TRUE(known);
  EXPECT_EQ(tensors.all()[0].tensor.values, elsewhere.data());
  named[0].tensor.count = 2;
  EXPECT_FALSE(tensors.same(named));
  assign();
  EXPECT_FALSE(known);
  EXPECT_FALSE(tensors.assign({})) << "of an empty bucket nothing is kept";
  EXPECT_FALSE(tensors.assign({}));
}

TEST_F(BucketTensorsTest, MeansLieOneAfterAnother) {
  assign();
  EXPECT_TRUE(tensors.means().empty()) << "before stage()";
  form_means();
  EXPECT_EQ(std::vector<float>(tensors.means().begin(), tensors.means().end()),
            (std::vector<float>{1, 2, 3, 0.5F, 4}));
  EXPECT_EQ(tensors.pair_means()[0].dimension, 10u);
  EXPECT_EQ(meter->held(MemoryMeter::Use::kStaging), 5 * sizeof(float));
  tensors.give_back();
  EXPECT_TRUE(tensors.means().empty());
}

TEST_F(BucketTensorsTest, OnlyPublishingChangesTheCallersMemory) {
  assign();
  form_means();
  EXPECT_EQ(dense, std::vector<float>(3));
  EXPECT_TRUE(pair_mean.keys.empty());
  tensors.publish();
  EXPECT_EQ(dense, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(halves, (std::vector<std::uint16_t>{0x3800, 0x4400}));
  EXPECT_EQ(pair_mean.keys, (std::vector<std::uint32_t>{5, 9}));
  EXPECT_EQ(pair_mean.values, (std::vector<float>{7, 8}));
  EXPECT_EQ(pair_mean.dimension, 10u);
}

TEST_F(BucketTensorsTest, TheDigestIsOfAllMeans) {
  assign();
  form_means();
  const std::uint64_t digest = tensors.digest(0);
  EXPECT_EQ(tensors.digest(0), digest);
  EXPECT_NE(tensors.digest(1), digest);
  tensors.mean_of(2)[1] = 5;
  EXPECT_NE(tensors.digest(0), digest);
  tensors.mean_of(2)[1] = 4;
  tensors.pair_means()[0].keys[1] = 8;
  EXPECT_NE(tensors.digest(0), digest);
  tensors.pair_means()[0].keys[1] = 9;
  tensors.pair_means()[0].values[1] = 9;
  EXPECT_NE(tensors.digest(0), digest);
}

// A part of a dense tensor's mean, as patterns have it.
Named mean_part(std::span<float> mean, std::uint64_t first, std::uint64_t count, DType dtype) {
  Named part{"", {mean.data() + first, count, DType::kF32}, first};
  if (dtype != DType::kF32) part.summed_dtype = dtype;
  return part;
}

TEST_F(BucketTensorsTest, PartsSettleInAnyOrder) {
  assign();
  const auto settled = [&](std::vector<int> order, std::size_t changed = 9) {
    form_means();
    if (changed < tensors.means().size()) tensors.means()[changed] += 1;
    for (const int part : order) {
      if (part == 2) tensors.settle(mean_part(tensors.mean_of(2), 0, 2, DType::kF16));
      if (part < 2)
        tensors.settle(mean_part(tensors.mean_of(0), part == 0 ? 0 : 1, part == 0 ? 1 : 2, DType::kF32));
    }
    return tensors.digest(0);
  };
  const std::uint64_t digest = settled({0, 1, 2});
  EXPECT_EQ(settled({2, 0, 1}), digest);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NE(settled({0, 1, 2}, i), digest) << i;
}

// Where a part lies counts, too: two parts that have changed places are other means.
TEST_F(BucketTensorsTest, PartsThatHaveChangedPlacesAreSeen) {
  assign();
  const auto digest_of = [&](std::vector<float> means) {
    tensors.stage();
    std::ranges::copy(means, tensors.means().begin());
    tensors.settle(mean_part(tensors.mean_of(0), 0, 1, DType::kF32));
    tensors.settle(mean_part(tensors.mean_of(0), 1, 2, DType::kF32));
    tensors.settle(mean_part(tensors.mean_of(2), 0, 2, DType::kF16));
    return tensors.digest(0);
  };
  EXPECT_NE(digest_of({1, 2, 3, 4, 5}), digest_of({1, 4, 5, 2, 3}));
}

TEST_F(BucketTensorsTest, WhatSettlesIsLookedAtOnce) {
  assign();
  const auto settle = [&](float first, float last) {
    form_means();
    tensors.mean_of(0)[0] = first;
    tensors.mean_of(2)[1] = last;
    tensors.settle(mean_part(tensors.mean_of(0), 0, 3, DType::kF32));
    tensors.settle(mean_part(tensors.mean_of(2), 0, 2, DType::kF16));
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  tensors.look_for_infinities(true);
  settle(1, 2);
  EXPECT_TRUE(tensors.finite());
  EXPECT_TRUE(tensors.check_range());
  settle(kInfinity, 2);
  EXPECT_FALSE(tensors.finite());
  settle(1, 70000);
  EXPECT_TRUE(tensors.finite());
  const Status beyond = tensors.check_range();
  ASSERT_FALSE(beyond);
  EXPECT_TRUE(beyond.error().message.starts_with("tensor 'h': a mean is 70000")) << beyond.error().message;
}

TEST_F(BucketTensorsTest, AMeanThatIsNotFiniteIsFound) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  assign();
  form_means();
  EXPECT_TRUE(tensors.finite());
  tensors.mean_of(0)[2] = kInfinity;
  EXPECT_FALSE(tensors.finite());
  form_means();
  tensors.pair_means()[0].values[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(tensors.finite());
}

TEST_F(BucketTensorsTest, AMeanBeyondItsDtypeIsNamed) {
  named[1].tensor.dtype = DType::kF16;
  assign();
  form_means();
  EXPECT_TRUE(tensors.check_range());
  tensors.mean_of(2)[0] = 70000.0F;
  Status beyond = tensors.check_range();
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kRange);
  EXPECT_TRUE(beyond.error().message.starts_with("tensor 'h': a mean is 70000")) << beyond.error().message;
  form_means();
  tensors.pair_means()[0].values[1] = 70000.0F;
  beyond = tensors.check_range();
  ASSERT_FALSE(beyond);
  EXPECT_TRUE(beyond.error().message.starts_with("tensor 'k': ")) << beyond.error().message;
}

}  // namespace
}  // namespace deltawire::bucket_tensors_test
