// Keys that `direct` partitions among their owners: every rank sends and owns its share of the pairs.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/refusal_testing.h"
#include "reduce/patterns/pairs_testing.h"

namespace deltawire::direct_pairs_test {
namespace {

constexpr std::uint64_t kDimension = 200000;

// Low keys come most often, as in data whose features are numbered by how often they come.
Pairs skewed_update(int rank) {
  CounterRng random(static_cast<std::uint64_t>(rank), 5);
  Pairs pairs;
  pairs.dimension = kDimension;
  for (std::uint32_t key = 0; key < kDimension; ++key) {
    if (random.next_uniform() > 3000.0 / (3000.0 + key)) continue;
    pairs.keys.push_back(key);
    pairs.values.push_back(static_cast<float>(random.next_uniform() - 0.5));
  }
  return pairs;
}

std::vector<double> bytes_by_rank(int world, const std::string& spec) {
  std::vector<double> bytes(static_cast<std::size_t>(world));
  run_ranks(world, {}, [&](int rank, Transport& transport) {
    Pairs own = skewed_update(rank);
    Pairs mean;
    const auto report = reduce(*reducer_of(spec), named("w", own), mean, transport);
    ASSERT_TRUE(report) << report.error().message;
    bytes[static_cast<std::size_t>(rank)] = static_cast<double>(report->bytes_sent);
  });
  return bytes;
}

TEST(DirectPairs, OfSkewedDataAreEvenAndDoNotGrowWithTheRanks) {
  const std::string codec = "(fastsgd:tau=2047)";
  const auto four = bytes_by_rank(4, "direct" + codec);
  const auto eight = bytes_by_rank(8, "direct" + codec);
  for (const auto& bytes : {four, eight}) {
    const auto [least, most] = std::ranges::minmax(bytes);
    EXPECT_LT(most, 1.1 * least);
  }
  // A rank's own pairs once, and its share of all ranks', to N - 1 others; `gather` sends N - 1 copies.
  EXPECT_LT(eight[0], 1.8 * four[0]);
  const auto gathered = bytes_by_rank(8, "gather" + codec);
  EXPECT_LT(eight[0], 0.75 * gathered[0]);
}

// fastsgd underestimates by up to b: a rank's share once, the mean once more. Nothing comes that nobody sent.
TEST(DirectPairs, LoseWhatTheCodecLosesTwice) {
  constexpr int kWorld = 3;
  std::map<std::uint32_t, double> sums;
  for (int rank = 0; rank < kWorld; ++rank) {
    Pairs own = skewed_update(rank);
    for (std::size_t i = 0; i < own.keys.size(); ++i) {
      sums[own.keys[i]] += std::abs(static_cast<double>(own.values[i])) / kWorld;
    }
  }
  run_ranks(kWorld, {}, [&](int rank, Transport& transport) {
    Pairs own = skewed_update(rank);
    // One sign, so that a sum's error is that of its terms.
    for (float& value : own.values) value = std::abs(value);
    Pairs mean;
    const auto report =
        reduce(*reducer_of("direct(fastsgd:b=1.1,tau=2047)"), named("w", own), mean, transport);
    ASSERT_TRUE(report) << report.error().message;
    ASSERT_EQ(mean.keys.size(), sums.size());
    for (std::size_t i = 0; i < mean.keys.size(); ++i) {
      const double sum = sums.at(mean.keys[i]);
      const auto value = static_cast<double>(mean.values[i]);
      ASSERT_LE(value, sum * (1 + 1e-6)) << mean.keys[i];
      ASSERT_GE(value, sum / (1.1 * 1.1) * (1 - 1e-6)) << mean.keys[i];
    }
  });
}

TEST(DirectPairs, OfOneRankAreNoMatchForADenseTensorOfAnother) {
  // As a dense tensor, it is cut into ranges as long as the shards of its keys.
  constexpr std::uint64_t kAlike = 64000;
  run_ranks(2, {}, [](int rank, Transport& transport) {
    Pairs own{{5}, {1.0F}, kAlike};
    Pairs mean;
    std::vector<float> dense(kAlike);
    const Named tensor = rank == 0 ? named("w", own) : named("w", dense);
    const std::span<Pairs> means(&mean, rank == 0 ? 1 : 0);
    testing::expect_refused(
        reducer_of("direct(fastsgd)")
            ->all_reduce({std::span(&tensor, 1), means}, {0, 0, true}, transport, in_seconds(5)),
        ErrorCode::kMismatch);
  });
}

// Keys out of order could look well in each owner's share.
TEST(DirectPairs, OutOfOrderAreRefusedThoughEachShareIsInOrder) {
  run_ranks(2, {}, [](int rank, Transport& transport) {
    Pairs own{{5, 40, 41, 42, 43, 30, 31, 32, 33}, std::vector<float>(9, 1.0F), kDimension};
    if (rank == 1) std::ranges::sort(own.keys);
    Pairs mean;
    const auto report = reduce(*reducer_of("direct(fastsgd)"), named("w", own), mean, transport);
    ASSERT_FALSE(report);
    if (rank == 0) {
      EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument) << report.error().message;
    }
  });
}

}  // namespace
}  // namespace deltawire::direct_pairs_test
