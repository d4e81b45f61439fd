// The mean of key-value tensors: the same as that of the dense tensors they stand for.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "reduce/patterns/merge_pairs.h"
#include "reduce/rank_threads.h"

namespace deltawire {
namespace {

const std::vector<std::uint64_t> kDimensions{100000, 50, 300};  // the second travels raw
const std::vector<std::string> kNames{"clicks", "bias", "users"};

// A rank's update of a tensor: keys that some other ranks have too.
Pairs update_of(int rank, std::uint64_t dimension, std::uint64_t step) {
  CounterRng random(step * 100 + static_cast<std::uint64_t>(rank), dimension);
  Pairs pairs;
  pairs.dimension = dimension;
  for (std::uint64_t key = 0; key < dimension; key += 1 + random.next() % 40) {
    pairs.keys.push_back(static_cast<std::uint32_t>(key));
    pairs.values.push_back(static_cast<float>(random.next_uniform() - 0.5));
  }
  return pairs;
}

std::vector<float> dense_of(const Pairs& pairs) {
  std::vector<float> dense(pairs.dimension, 0.0F);
  for (std::size_t i = 0; i < pairs.keys.size(); ++i) dense[pairs.keys[i]] = pairs.values[i];
  return dense;
}

struct Updates {
  Updates(int rank, std::uint64_t step) {
    for (const std::uint64_t dimension : kDimensions) pairs.push_back(update_of(rank, dimension, step));
  }
  std::vector<Named> named() {
    std::vector<Named> all;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      Pairs& own = pairs[i];
      all.push_back({kNames[i],
                     {own.values.data(), own.values.size(), DType::kF32, own.keys.data(), own.dimension},
                     0});
    }
    return all;
  }
  std::vector<Pairs> pairs;
};

class PairsMean : public ::testing::TestWithParam<int> {};

TEST_P(PairsMean, EqualsTheMeanOfTheDenseTensors) {
  const std::string spec = "gather(fastsgd:b=1.02,tau=2047)";
  run_ranks(GetParam(), {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of(spec);
    const auto dense_reducer = reducer_of(spec);
    std::vector<Pairs> means;
    for (std::uint64_t step = 0; step < 3; ++step) {
      Updates updates(rank, step);
      const auto report =
          reducer->all_reduce_pairs(updates.named(), means, {2 * step, 0, true}, transport, in_seconds(20));
      ASSERT_TRUE(report) << report.error().message;
      // As many elements as the dense tensors have; the raw bytes are of the messages that `gather` sends.
      EXPECT_EQ(report->element_count, 100000U + 50U + 300U);
      EXPECT_EQ(report->raw_bytes, 4U * 100350U * static_cast<std::uint64_t>(GetParam() - 1));
      ASSERT_EQ(means.size(), kNames.size());
      std::vector<std::vector<float>> dense;
      std::vector<Named> named;
      for (std::size_t i = 0; i < kNames.size(); ++i) dense.push_back(dense_of(updates.pairs[i]));
      for (std::size_t i = 0; i < kNames.size(); ++i) {
        named.push_back({kNames[i], {dense[i].data(), dense[i].size(), DType::kF32}, 0});
      }
      ASSERT_TRUE(dense_reducer->all_reduce(named, {2 * step + 1, 0, true}, transport, in_seconds(20)));
      for (std::size_t i = 0; i < kNames.size(); ++i) {
        EXPECT_EQ(dense_of(means[i]), dense[i]) << kNames[i];
        EXPECT_LT(means[i].keys.size(), kDimensions[i]);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, PairsMean, ::testing::Values(1, 2, 3, 5));

TEST(Pairs, TakeFewerBytesThanTheyWouldRaw) {
  run_ranks(2, {}, [](int rank, Transport& transport) {
    const auto reducer = reducer_of("fastsgd");
    Updates updates(rank, 0);
    std::vector<Pairs> means;
    const auto report =
        reducer->all_reduce_pairs(updates.named(), means, {0, 0, true}, transport, in_seconds(20));
    ASSERT_TRUE(report);
    EXPECT_LT(report->bytes_sent, 3 * updates.pairs[0].keys.size());
  });
}

// Nothing of the size of the dimension is touched or kept.
TEST(Pairs, AVastDimensionCostsNothing) {
  static constexpr std::uint32_t kDimension = 20000000;
  run_ranks(2, {}, [](int rank, Transport& transport) {
    std::vector<std::uint32_t> keys{5, static_cast<std::uint32_t>(1000 + rank), kDimension - 1};
    std::vector<float> values(3, 1.0F);
    const Named tensor{"ads", {values.data(), 3, DType::kF32, keys.data(), kDimension}, 0};
    std::vector<Pairs> means;
    const auto report = reducer_of("fastsgd")->all_reduce_pairs(std::span(&tensor, 1), means, {0, 0, true},
                                                                transport, in_seconds(20));
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(means.at(0).keys, (std::vector<std::uint32_t>{5, 1000, 1001, kDimension - 1}));
    EXPECT_EQ(means[0].dimension, kDimension);
    EXPECT_LT(means[0].keys.capacity(), 10000u);
  });
}

TEST(Pairs, AFailedStepDeliversNothing) {
  std::vector<LinkOptions> broken(2);
  broken[0].faults.push_back({LinkFault::Kind::kFlip, 1, 300, {}});
  run_ranks(2, broken, [](int rank, Transport& transport) {
    Updates updates(rank, 0);
    std::vector<Pairs> means(1);
    means[0].keys = {77};
    const auto report = reducer_of("fastsgd")->all_reduce_pairs(updates.named(), means, {0, 0, true},
                                                                transport, in_seconds(20));
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().suspect, 0);
    ASSERT_EQ(means.size(), 1u);
    EXPECT_EQ(means[0].keys, std::vector<std::uint32_t>{77});
  });
}

TEST(Pairs, WhatIsRefused) {
  run_ranks(1, {}, [](int rank, Transport& transport) {
    std::vector<Pairs> means;
    Updates updates(rank, 0);
    for (const char* spec : {"gather(fp32)", "direct(fastsgd)", "ring(fastsgd)"}) {
      const auto report =
          reducer_of(spec)->all_reduce_pairs(updates.named(), means, {0, 0, true}, transport, in_seconds(2));
      ASSERT_FALSE(report) << spec;
      EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument) << spec;
    }
    const auto busy = reducer_of("fastsgd");
    std::vector<float> values(10, 1.0F);
    const Named dense{"w", {values.data(), 10, DType::kF32}, 0};
    ASSERT_TRUE(busy->begin(std::span(&dense, 1), {0, 0, false}, transport, in_seconds(2)));
    EXPECT_EQ(
        busy->all_reduce_pairs(updates.named(), means, {0, 1, true}, transport, in_seconds(2)).error().code,
        ErrorCode::kState);
  });
}

TEST(Pairs, KeysOutOfOrderAreNamedInRawPartsToo) {
  for (const std::uint64_t dimension : {100U, 5000U}) {
    run_ranks(1, {}, [&](int, Transport& transport) {
      std::vector<float> values{1, 2, 3};
      std::vector<std::uint32_t> keys{4, 9, 9};
      const Named tensor{"w", {values.data(), 3, DType::kF32, keys.data(), dimension}, 0};
      std::vector<Pairs> means;
      const auto report = reducer_of("fastsgd")->all_reduce_pairs(std::span(&tensor, 1), means, {0, 0, true},
                                                                  transport, in_seconds(2));
      ASSERT_FALSE(report);
      EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument) << report.error().message;
    });
  }
}

// The vote fails because one rank had a bucket more: the caller's lists must be as they were.
TEST(Pairs, AreHandedOverAfterTheVoteOnly) {
  run_ranks(2, {}, [](int rank, Transport& transport) {
    const auto reducer = reducer_of("fastsgd");
    Updates updates(rank, 0);
    std::vector<Pairs> means{{{7}, {1.0F}, 10}};
    if (rank == 0) {
      std::vector<float> values(10, 1.0F);
      const Named dense{"w", {values.data(), 0, DType::kF32}, 0};
      ASSERT_TRUE(reducer->begin(std::span(&dense, 1), {0, 1, false}, transport, in_seconds(5)));
      ASSERT_TRUE(reducer->finish());
    }
    const auto report =
        reducer->all_reduce_pairs(updates.named(), means, {0, 0, true}, transport, in_seconds(5));
    ASSERT_FALSE(report);
    ASSERT_EQ(means.size(), 1U);
    EXPECT_EQ(means[0].keys, std::vector<std::uint32_t>{7});
  });
}

TEST(Pairs, WithAResidualAreRefused) {
  run_ranks(1, {}, [](int rank, Transport& transport) {
    Updates updates(rank, 0);
    std::vector<Pairs> means;
    const auto report =
        reducer_of("fastsgd:residual=on")
            ->all_reduce_pairs(updates.named(), means, {0, 0, true}, transport, in_seconds(2));
    ASSERT_FALSE(report);
    EXPECT_NE(report.error().message.find("residual"), std::string::npos) << report.error().message;
  });
}

TEST(MergedPairs, BeginAnewWithNothing) {
  MergedPairs merged;
  const Named tensor{"w", {nullptr, 10, DType::kF32}, 0};
  merged.clear(std::span(&tensor, 1));
  merged.add(0, {{1, 5}, {1.0F, 2.0F}, 10});
  const Named other{"v", {nullptr, 7, DType::kF32}, 0};
  merged.clear(std::span(&other, 1));
  ASSERT_EQ(merged.sums().size(), 1U);
  EXPECT_TRUE(merged.sums()[0].keys.empty());
  EXPECT_TRUE(merged.sums()[0].values.empty());
  EXPECT_EQ(merged.sums()[0].dimension, 7U);
  merged.add(0, {{2}, {4.0F}, 7});
  EXPECT_EQ(merged.sums()[0].keys, std::vector<std::uint32_t>{2});
  EXPECT_EQ(merged.sums()[0].values, std::vector<float>{4.0F});
}

TEST(MergedPairs, AddsInOrderAndKeepsWhatIsAlone) {
  MergedPairs merged;
  const Named tensor{"w", {nullptr, 10, DType::kF32}, 0};
  merged.clear(std::span(&tensor, 1));
  merged.add(0, {{1, 5, 7}, {1.0F, -0.0F, 0.25F}, 10});
  merged.add(0, {{0, 5, 9}, {2.0F, 3.0F, -1.0F}, 10});
  std::vector<Pairs> sums;
  merged.move_to(sums);
  EXPECT_EQ(sums[0].dimension, 10U);
  EXPECT_EQ(sums[0].keys, (std::vector<std::uint32_t>{0, 1, 5, 7, 9}));
  EXPECT_EQ(sums[0].values, (std::vector<float>{2.0F, 1.0F, 3.0F, 0.25F, -1.0F}));
}

}  // namespace
}  // namespace deltawire
