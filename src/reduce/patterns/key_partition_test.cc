#include <array>

#include <gtest/gtest.h>

#include "base/property_testing.h"
#include "base/random.h"
#include "reduce/patterns/owners.h"

namespace deltawire::key_partition_test {
namespace {

// Pinned: docs/reference/format.md states the rule, and other builds must partition alike. Worked out by the
// page's words in Python.
TEST(KeyPartition, GoldenShards) {
  const KeyPartition partition(20, 3);
  std::vector<std::uint32_t> shards;
  std::vector<std::uint64_t> firsts;
  for (std::uint32_t key = 0; key < 20; ++key) shards.push_back(partition.place_of(key).shard);
  for (std::uint32_t shard = 0; shard <= 3; ++shard) firsts.push_back(partition.first(shard));
  EXPECT_EQ(shards, (std::vector<std::uint32_t>{0, 1, 2, 1, 2, 0, 0, 1, 2, 2, 0, 1, 1, 2, 0, 0, 1, 2, 2, 0}));
  EXPECT_EQ(firsts, (std::vector<std::uint64_t>{1, 8, 14, 21}));
  EXPECT_EQ(KeyPartition(0xFFFFFFFF, 8).place_of(4000000007U).shard, 1u);
}

TEST(KeyPartition, GoldenOwners) {
  using Range = std::array<std::uint64_t, 3>;
  std::vector<Range> ranges;
  for (const OwnedRange& range : owned_key_ranges("fc1.weight", 100001, 4, 20000)) {
    ranges.push_back({range.first, range.count, static_cast<std::uint64_t>(range.owner)});
  }
  EXPECT_EQ(ranges, (std::vector<Range>{{1, 20000, 1},
                                        {20001, 5000, 1},
                                        {25001, 20000, 2},
                                        {45001, 5000, 2},
                                        {50001, 20000, 3},
                                        {70001, 5000, 3},
                                        {75001, 20000, 0},
                                        {95001, 5001, 0}}));
  ranges.clear();
  for (const OwnedRange& range : owned_key_ranges("conv1.weight", 16383, 5, kMostElements)) {
    ranges.push_back({range.first, range.count, static_cast<std::uint64_t>(range.owner)});
  }
  EXPECT_EQ(ranges, (std::vector<Range>{{0, 16383, 1}}));
  EXPECT_TRUE(owned_key_ranges("none", 0, 4, 320).empty());
}

PROPERTY(KeyPartitionProperty, EachKeyHasAPlaceOfItsOwn) {
  const auto count = testing::drawn(1, 3000);
  const KeyPartition partition(count, static_cast<std::uint32_t>(testing::drawn(1, 80)));
  std::vector<std::uint32_t> next(partition.shards(), 0);
  for (std::uint32_t key = 0; key < count; ++key) {
    const auto [shard, at] = partition.place_of(key);
    HOLDS(shard < partition.shards());
    HOLDS(at == next[shard]++);  // in the order of keys, without a gap
    HOLDS(partition.key_at({shard, at}) == key);
    HOLDS(partition.shard_at(partition.first(shard) + at) == shard);
  }
  for (std::uint32_t shard = 0; shard < partition.shards(); ++shard) {
    HOLDS(partition.first(shard + 1) - partition.first(shard) == next[shard]);
  }
}

PROPERTY(KeyPartitionProperty, KeysOf32BitsAreDividedExactly) {
  const auto shards = static_cast<std::uint32_t>(testing::drawn(2, 65535));
  const KeyPartition partition(0xFFFFFFFF, shards);
  const auto key = static_cast<std::uint32_t>(testing::drawn(0, 0xFFFFFFFE));
  for (const std::uint32_t near : {key, key / shards * shards, 0xFFFFFFFEU}) {
    HOLDS(partition.place_of(near).at == near / shards);
    HOLDS(partition.key_at(partition.place_of(near)) == near);
  }
}

// Where a range of low keys would have most pairs, and where features come in a pattern.
TEST(KeyPartition, ShardsAreEvenWhateverTheData) {
  constexpr std::uint64_t kCount = 1 << 20;
  CounterRng random(1);
  std::vector<std::uint32_t> skewed;
  std::vector<std::uint32_t> striped;
  for (std::uint32_t key = 0; key < kCount; ++key) {
    if (random.next_uniform() < 2000.0 / (2000.0 + key)) skewed.push_back(key);
    if (key % 16 == 3) striped.push_back(key);
  }
  for (const std::uint32_t shards : {2U, 4U, 8U, 16U}) {
    const KeyPartition partition(kCount, shards);
    for (const auto& keys : {skewed, striped}) {
      std::vector<double> pairs(shards);
      for (const std::uint32_t key : keys) ++pairs[partition.place_of(key).shard];
      const double mean = static_cast<double>(keys.size()) / shards;
      EXPECT_LT(std::ranges::max(pairs), 1.15 * mean) << shards << " shards";
    }
    const auto low = std::ranges::lower_bound(skewed, kCount / shards) - skewed.begin();
    EXPECT_GT(static_cast<double>(low) * shards, 1.7 * static_cast<double>(skewed.size()));
  }
}

Pairs drawn_pairs(std::uint64_t dimension) {
  Pairs pairs;
  pairs.dimension = dimension;
  CounterRng random(3);
  for (std::uint64_t key = 0; key < dimension; key += 1 + random.next() % 30) {
    pairs.keys.push_back(static_cast<std::uint32_t>(key));
    pairs.values.push_back(static_cast<float>(key));
  }
  return pairs;
}

TensorSlot slot_of(Pairs& pairs) {
  return {pairs.values.data(), pairs.keys.size(), DType::kF32, pairs.keys.data(), pairs.dimension};
}

// Every pair in one part, at its place, with its value; in parts that begin within a shard, too.
TEST(PartitionedPairs, GoToTheirParts) {
  Pairs pairs = drawn_pairs(50000);
  for (const int world : {1, 3}) {
    for (const std::uint64_t most : {std::uint64_t{320}, kMostElements}) {
      const KeyPartition partition = key_partition_of(pairs.dimension, world);
      PartitionedPairs partitioned;
      partitioned.assign(slot_of(pairs), partition);
      std::size_t seen = 0;
      for (const OwnedRange& range : owned_key_ranges("w", pairs.dimension, world, most)) {
        TensorSlot part;
        partitioned.take(range, part);
        const std::uint32_t shard = partition.shard_at(range.first);
        for (std::size_t i = 0; i < part.count; ++i, ++seen) {
          ASSERT_LT(part.keys[i], range.count);
          const auto at = static_cast<std::uint32_t>(range.first - partition.first(shard)) + part.keys[i];
          ASSERT_EQ(static_cast<float>(partition.key_at({shard, at})),
                    static_cast<const float*>(part.values)[i]);
        }
      }
      EXPECT_EQ(seen, pairs.keys.size());
    }
  }
}

TEST(PartitionedPairs, OfSixteenBitsKeepTheirBits) {
  Pairs pairs = drawn_pairs(20000);
  std::vector<std::uint16_t> values(pairs.keys.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(pairs.keys[i]);
  TensorSlot slot = slot_of(pairs);
  slot.dtype = DType::kBF16;
  slot.values = values.data();
  const KeyPartition partition = key_partition_of(20000, 2);
  PartitionedPairs partitioned;
  partitioned.assign(slot, partition);
  const auto ranges = owned_key_ranges("w", 20000, 2, kMostElements);
  ASSERT_EQ(ranges.size(), 2u);
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    TensorSlot part;
    partitioned.take(ranges[shard], part);
    EXPECT_NEAR(static_cast<double>(part.count), static_cast<double>(values.size()) / 2, 100.0);
    for (std::size_t i = 0; i < part.count; ++i) {
      ASSERT_EQ(partition.key_at({shard, part.keys[i]}), static_cast<const std::uint16_t*>(part.values)[i]);
    }
  }
}

// Each shard alone might look sorted.
TEST(PartitionedPairs, WhatIsOutOfOrderStaysTogether) {
  for (const std::vector<std::uint32_t>& keys :
       std::vector<std::vector<std::uint32_t>>{{4, 9, 9}, {9, 4}, {4, 20000}, {0xFFFFFFFF}}) {
    Pairs pairs{keys, std::vector<float>(keys.size(), 1.0F), 20000};
    PartitionedPairs partitioned;
    partitioned.assign(slot_of(pairs), key_partition_of(20000, 4));
    const auto ranges = owned_key_ranges("w", 20000, 4, kMostElements);
    for (const OwnedRange& range : ranges) {
      TensorSlot part;
      partitioned.take(range, part);
      EXPECT_EQ(part.count, range.first == ranges[0].first ? keys.size() : 0u);
    }
  }
}

}  // namespace
}  // namespace deltawire::key_partition_test
