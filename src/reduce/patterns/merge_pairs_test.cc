#include <bit>
#include <map>

#include <gtest/gtest.h>

#include "base/random.h"
#include "reduce/patterns/part_means.h"

namespace deltawire::merge_pairs_test {
namespace {

// One list after another, key by key.
Pairs slow_sum(const std::vector<Pairs>& lists) {
  std::map<std::uint32_t, float> sums;
  for (const Pairs& list : lists) {
    for (std::size_t i = 0; i < list.keys.size(); ++i) {
      const auto [found, is_new] = sums.try_emplace(list.keys[i], list.values[i]);
      if (!is_new) found->second += list.values[i];
    }
  }
  Pairs sum;
  for (const auto& [key, value] : sums) {
    sum.keys.push_back(key);
    sum.values.push_back(value);
  }
  return sum;
}

void expect_bits(const Pairs& sum, const Pairs& expected) {
  ASSERT_EQ(sum.keys, expected.keys);
  ASSERT_EQ(sum.values.size(), expected.values.size());
  for (std::size_t i = 0; i < sum.values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(sum.values[i]), std::bit_cast<std::uint32_t>(expected.values[i]))
        << "key " << sum.keys[i];
  }
}

TEST(MergePairs, AddsInOrderAndKeepsWhatIsAlone) {
  const std::vector<Pairs> lists{
      {{1, 5, 7}, {1.0F, -0.0F, 0.25F}, 10}, {{}, {}, 10}, {{0, 5, 9}, {2.0F, 3.0F, -0.0F}, 10}};
  Pairs sum{{99}, {9.0F}, 7};
  PairMerger merger;
  merger.merge(std::vector<PairStream>(lists.begin(), lists.end()), sum);
  expect_bits(sum, {{0, 1, 5, 7, 9}, {2.0F, 1.0F, 3.0F, 0.25F, -0.0F}, 10});
  EXPECT_EQ(sum.dimension, 7U);
  // What stood in the window before leaves nothing, not even a sign.
  const std::vector<Pairs> next{{{1, 7}, {-0.0F, 1.0F}, 10}, {{9}, {-0.0F}, 10}};
  merger.merge(std::vector<PairStream>(next.begin(), next.end()), sum);
  expect_bits(sum, {{1, 7, 9}, {-0.0F, 1.0F, -0.0F}, 10});
  merger.merge({}, sum);
  EXPECT_TRUE(sum.keys.empty());
  merger.merge(std::vector<PairStream>{lists[0]}, sum);
  expect_bits(sum, lists[0]);
}

TEST(MergePairs, TheOrderOfStreamsIsTheOrderOfSums) {
  const std::vector<Pairs> lists{{{3}, {1.0F}, 9}, {{3}, {0x1p-24F}, 9}, {{3}, {0x1p-24F}, 9}};
  Pairs sum;
  PairMerger merger;
  merger.merge(std::vector<PairStream>(lists.begin(), lists.end()), sum);
  EXPECT_EQ(sum.values, std::vector<float>{1.0F});  // and not 1 + 2^-23
}

// Windows of every length, one merger for all, up to the last key that there can be.
TEST(MergePairs, IsTheSumThatASlowMergeGives) {
  PairMerger merger;
  CounterRng random(7);
  for (const std::uint32_t most_gap : {1U, 3U, 40U, 5000U, 300000U, 20000000U}) {
    for (const std::size_t streams : {2U, 3U, 8U, 13U}) {
      std::vector<Pairs> lists(streams);
      for (Pairs& list : lists) {
        std::uint64_t key = random.next() % 5000;
        // A stream may end long before others do.
        for (auto left = random.next() % 6000; left > 0 && key < 0xFFFFFFFF; --left) {
          list.keys.push_back(static_cast<std::uint32_t>(key));
          list.values.push_back(static_cast<float>(random.next_uniform() - 0.5));
          key += 1 + random.next() % most_gap;
        }
      }
      for (const std::size_t last : {1U, 0U}) {
        // Far from all others, so that windows are the longest.
        if (most_gap < 5000 || (!lists[last].keys.empty() && lists[last].keys.back() == 0xFFFFFFFF)) continue;
        lists[last].keys.push_back(0xFFFFFFFF);
        lists[last].values.push_back(static_cast<float>(last) + 1);
      }
      Pairs sum;
      merger.merge(std::vector<PairStream>(lists.begin(), lists.end()), sum);
      expect_bits(sum, slow_sum(lists));
    }
  }
}

}  // namespace
}  // namespace deltawire::merge_pairs_test
