// The length limiter against a search over all codes, and what a table says about a histogram.
#include "codecs/gcomp/gcomp_table.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "base/property_testing.h"
#include "base/random.h"

namespace deltawire::gcomp::gcomp_table_test {
namespace {

constexpr std::uint32_t kComplete = 256;  // the sum of 2^(8 - length) of a complete code

// Lengths of symbols 0, 1, ... with these weights.
std::vector<std::uint32_t> limited(const std::vector<std::uint32_t>& weights) {
  std::vector<SlotWeight> symbols;
  symbols.reserve(weights.size());
  for (std::uint32_t i = 0; i < weights.size(); ++i) symbols.push_back({weights[i], i});
  CodeLengths lengths;
  limit_lengths(symbols, lengths);
  return {lengths.bits, lengths.bits + weights.size()};
}

std::uint64_t cost(const std::vector<std::uint32_t>& weights, const std::vector<std::uint32_t>& lengths) {
  return std::inner_product(weights.begin(), weights.end(), lengths.begin(), std::uint64_t{0});
}

std::uint32_t kraft(const std::vector<std::uint32_t>& lengths) {
  std::uint32_t sum = 0;
  for (const std::uint32_t length : lengths) sum += kComplete >> length;
  return sum;
}

// The cheapest of all complete codes of at most 8 bits, by trying every sequence of lengths that doesn't
// shrink; `weights` from frequent to rare, of which the first `at` are done and have used `used`.
std::uint64_t cheapest(const std::vector<std::uint32_t>& weights, std::size_t at, std::uint32_t least,
                       std::uint32_t used) {
  if (at == weights.size()) return used == kComplete ? 0 : ~std::uint64_t{0} / 2;
  std::uint64_t best = ~std::uint64_t{0} / 2;
  for (std::uint32_t length = least; length <= kMaxCodeBits; ++length) {
    const std::uint32_t share = kComplete >> length;
    if (used + share > kComplete) continue;
    const std::uint64_t rest = cheapest(weights, at + 1, length, used + share);
    best = std::min(best, rest + std::uint64_t{weights[at]} * length);
  }
  return best;
}

TEST(GcompLengths, FibonacciWeightsWouldNeedLongerCodes) {
  const std::vector<std::uint32_t> weights = {144, 89, 55, 34, 21, 13, 8, 5, 3, 2, 1, 1};
  const auto lengths = limited(weights);
  EXPECT_EQ(kraft(lengths), kComplete);
  EXPECT_EQ(*std::max_element(lengths.begin(), lengths.end()), 8U);
  EXPECT_EQ(cost(weights, lengths), cheapest(weights, 0, 1, 0));
  const std::vector<std::uint32_t> unlimited = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11};
  EXPECT_GT(cost(weights, lengths), cost(weights, unlimited));
}

TEST(GcompLengths, SmallAlphabetsByHand) {
  EXPECT_EQ(limited({1, 1}), (std::vector<std::uint32_t>{1, 1}));
  EXPECT_EQ(limited({9, 1}), (std::vector<std::uint32_t>{1, 1}));
  EXPECT_EQ(limited({1, 1, 1}),
            (std::vector<std::uint32_t>{1, 2, 2}));  // ties: the lowest symbol is shortest
  EXPECT_EQ(limited({1, 2, 4, 8}), (std::vector<std::uint32_t>{3, 3, 2, 1}));
  EXPECT_EQ(limited({2, 2, 1, 1}), (std::vector<std::uint32_t>{2, 2, 2, 2}));  // 1 2 3 3 costs as much
}

PROPERTY(GcompLengths, OptimalWithinTheLimit) {
  std::vector<std::uint32_t> weights;
  // Powers of two of random size make deep trees.
  for (const std::uint64_t exponent : testing::drawn_list(testing::drawn(2, 13), 0, 20)) {
    weights.push_back(static_cast<std::uint32_t>(testing::drawn(1, 9) << exponent));
  }
  std::sort(weights.rbegin(), weights.rend());
  const auto lengths = limited(weights);
  HOLDS(kraft(lengths) == kComplete);
  HOLDS(cost(weights, lengths) == cheapest(weights, 0, 1, 0));
  HOLDS(std::is_sorted(lengths.begin(), lengths.end()));  // rarer, or equal and higher: never shorter
}

PROPERTY(GcompLengths, CompleteForManySymbols) {
  const auto drawn = testing::drawn_list(testing::drawn(2, kSlots), 1, 300000);
  const std::vector<std::uint32_t> weights(drawn.begin(), drawn.end());
  const auto lengths = limited(weights);
  HOLDS(kraft(lengths) == kComplete);
  HOLDS(*std::max_element(lengths.begin(), lengths.end()) <= kMaxCodeBits);
}

TEST(GcompLengths, StaticShapesAreCompleteCodes) {
  for (std::uint32_t id = 1; id <= kStaticTables; ++id) {
    CodeLengths lengths;
    static_lengths(id, 120, id, lengths);
    std::uint32_t sum = 0;
    for (const std::uint8_t bits : lengths.bits) sum += bits > 0 ? kComplete >> bits : 0;
    EXPECT_EQ(sum, kComplete) << id;
  }
  EXPECT_FALSE(static_fits(11));
  EXPECT_TRUE(static_fits(12));
  EXPECT_TRUE(static_fits(254));
  EXPECT_FALSE(static_fits(255));
}

std::uint32_t count_at(std::uint32_t exponent, std::uint32_t level) {
  return level * 256 + exponent;
}

// The histogram {place in counts, count}.
Histogram histogram_of(const std::vector<SlotWeight>& counts, bool complete) {
  Histogram histogram{{}, complete};
  for (const SlotWeight& entry : counts) histogram.counts[entry.slot] = entry.weight;
  return histogram;
}

CodeLengths chosen(const Histogram& histogram, const Rule& rule) {
  TableChoice choice;
  choose_table(histogram, rule, choice);
  return choice.lengths;
}

const Rule kAllLevels{Keep::kSignificance};

std::uint32_t length_of(const CodeLengths& lengths, std::uint32_t exponent, std::uint32_t level) {
  const std::uint32_t row = exponent - lengths.base;
  return row - 1 < kWindow ? lengths.bits[level * kRows + row] : 0;
}

TEST(GcompTable, RareExponentsAreEscaped) {
  const std::uint32_t frequent = count_at(120, 0);
  const std::uint32_t rare = count_at(110, 0);
  EXPECT_GT(length_of(chosen(histogram_of({{2047, frequent}, {1, rare}}, true), kAllLevels), 110, 0), 0U);
  const CodeLengths lengths = chosen(histogram_of({{2048, frequent}, {1, rare}}, true), kAllLevels);
  EXPECT_EQ(length_of(lengths, 110, 0), 0U);
  EXPECT_EQ(lengths.bits[kEscapeSlot], 1);
}

TEST(GcompTable, RareLevelsJoinTheNextLowerOne) {
  const Histogram histogram = histogram_of(
      {{4096, count_at(120, 0)}, {1, count_at(120, 6)}, {1, count_at(120, 5)}, {1, count_at(120, 4)}}, true);
  const CodeLengths lengths = chosen(histogram, kAllLevels);
  EXPECT_EQ(length_of(lengths, 120, 6), 0U);
  EXPECT_EQ(length_of(lengths, 120, 5), 0U);
  EXPECT_EQ(length_of(lengths, 120, 4), 1U);  // three of 4099 are enough
  EXPECT_EQ(lengths.bits[kEscapeSlot], 0);
  EncodeTable table;
  make_encode_table(lengths, table);
  const std::uint32_t row = 120 - lengths.base;
  for (const std::uint32_t level : {5U, 6U, 7U}) {
    EXPECT_EQ(table.entry[level * kRows + row], table.entry[4 * kRows + row]) << level;
  }
  for (const std::uint32_t level : {1U, 2U, 3U}) {
    EXPECT_EQ(table.entry[level * kRows + row], table.entry[row]) << level;
  }
}

// The window lies where most values are, of several places at the lowest.
TEST(GcompTable, WindowOfThirtyExponents) {
  const auto base = [](const std::vector<SlotWeight>& counts) {
    return chosen(histogram_of(counts, true), kAllLevels).base;
  };
  EXPECT_EQ(base({{9, count_at(5, 0)}, {9, count_at(6, 3)}}), 0U);
  EXPECT_EQ(base({{9, count_at(100, 0)}, {9, count_at(129, 3)}, {5, count_at(10, 0)}}), 99U);
  EXPECT_EQ(base({{9, count_at(100, 0)}, {10, count_at(130, 3)}}), 100U);
  EXPECT_EQ(base({{9, count_at(255, 0)}, {9, count_at(226, 0)}}), 225U);
}

TEST(GcompTable, ASampleLeavesTheDoorOpenForEverything) {
  const CodeLengths lengths = chosen(histogram_of({{100, count_at(120, 0)}}, false), kAllLevels);
  EXPECT_GT(lengths.bits[kEscapeSlot], 0);
  EXPECT_GT(lengths.bits[kZeroSlot], 0);
}

// What nothing was counted for weighs as much as one value, not nothing.
TEST(GcompTable, AnEscapeWeighsAtLeastOne) {
  const Histogram two = histogram_of({{2, count_at(120, 0)}, {2, count_at(121, 0)}}, false);
  const CodeLengths lengths = chosen(two, kAllLevels);
  for (const std::uint32_t exponent : {120U, 121U}) EXPECT_EQ(length_of(lengths, exponent, 0), 2U);
  EXPECT_EQ(lengths.bits[kEscapeSlot], 2);
  EXPECT_EQ(lengths.bits[kZeroSlot], 2);
}

TEST(GcompTable, ASingleSymbolHasTheEscapeBesideIt) {
  const CodeLengths one = chosen(histogram_of({{1000, count_at(120, 0)}}, true), kAllLevels);
  EXPECT_EQ(length_of(one, 120, 0), 1U);
  EXPECT_EQ(one.bits[kEscapeSlot], 1);
  EXPECT_EQ(one.bits[kZeroSlot], 0);
  const CodeLengths zeros = chosen(histogram_of({{1000, kZeroCount}}, true), kAllLevels);
  EXPECT_EQ(zeros.bits[kZeroSlot], 1);
  EXPECT_EQ(zeros.bits[kEscapeSlot], 1);
}

TEST(GcompTable, WorthCodingBelow32BitsAValue) {
  const auto worth = [](const Histogram& histogram) {
    TableChoice choice;
    choose_table(histogram, {Keep::kEverything}, choice);
    return choice.worth_coding;
  };
  Histogram histogram{{}, false};
  for (std::uint32_t exponent = 1; exponent < 256; ++exponent) histogram.counts[exponent] = 64;
  EXPECT_FALSE(worth(histogram));
  for (std::uint32_t exponent = 100; exponent < 130; ++exponent) histogram.counts[exponent] = 1000;
  EXPECT_TRUE(worth(histogram));
}

// Bits of table and codes as spec.md, 6.5, counts them, of a chunk with level 0 alone.
std::uint64_t bits_with(const Histogram& histogram, const CodeLengths& lengths, std::uint64_t table_bytes) {
  std::uint64_t bits = 8 * table_bytes + histogram.counts[0] * lengths.bits[kZeroSlot];
  for (std::uint32_t exponent = 1; exponent < 256; ++exponent) {
    const std::uint32_t own = length_of(lengths, exponent, 0);
    bits += histogram.counts[exponent] * ((own > 0 ? own : lengths.bits[kEscapeSlot] + 8U) + 24);
  }
  return bits;
}

// Counts of a chunk with one level: near the shape of a static table, or of any shape; sometimes with
// outliers.
Histogram random_histogram(CounterRng& random) {
  Histogram histogram{{}, true};
  const auto below = [&random](std::uint64_t bound) {
    return static_cast<std::uint32_t>(random.next() % bound);
  };
  const std::uint32_t top = below(4) == 0 ? 240 + below(15) : 12 + below(243);
  const StaticShape& shape = kStaticShapes[below(kStaticTables)];
  const std::uint32_t noise = 1 + below(6);
  for (std::uint32_t i = 0; i < kStaticExponents && i < top; ++i) {
    histogram.counts[top - i] = ((256U >> shape.exponents[i]) + below(noise)) / (1 + below(3));
  }
  histogram.counts[0] = below(2) * (256U >> shape.zero);
  if (below(3) == 0) histogram.counts[std::min(top + 1 + below(4), 254U)] += 1;
  if (below(4) == 0) histogram.counts[255] += 1 + below(3);
  histogram.counts[top] += 1;
  return histogram;
}

std::uint32_t highest_below_255(const Histogram& histogram) {
  std::uint32_t exponent = 254;
  while (exponent > 0 && histogram.counts[exponent] == 0) --exponent;
  return exponent;
}

// The table of a short chunk with one level is the smallest of all, ties to the first: found by trying them.
TEST(GcompTable, AShortChunkTakesTheSmallestTable) {
  CounterRng random(9);
  std::uint32_t chosen_ids[kStaticTables + 1] = {};
  for (int trial = 0; trial < 20000; ++trial) {
    Histogram histogram = random_histogram(random);
    TableChoice own;
    choose_table(histogram, kAllLevels, own);  // where levels differ it always has its own
    std::byte bytes[kMaxTableBytes];
    std::uint64_t smallest = bits_with(histogram, own.lengths, write_table(own, true, bytes));
    std::pair<std::uint32_t, std::uint32_t> expected{0, 0};
    const std::uint32_t highest = highest_below_255(histogram);
    for (std::uint32_t id = 1; id <= kStaticTables; ++id) {
      for (std::uint32_t top = highest + 1; top + 3 >= highest; --top) {
        if (top < 12 || top > 254) continue;
        CodeLengths lengths;
        static_lengths(id, top, 0, lengths);
        const std::uint64_t bits = bits_with(histogram, lengths, 1);
        if (bits >= smallest) continue;
        smallest = bits;
        expected = {id, top};
      }
    }
    TableChoice choice;
    choose_table(histogram, {Keep::kLevel, 0}, choice);
    ASSERT_EQ(std::make_pair(choice.id, choice.top), expected) << trial;
    ++chosen_ids[choice.id];
    histogram.complete = false;
    choose_table(histogram, {Keep::kLevel, 0}, choice);
    ASSERT_EQ(choice.id, 0U);
  }
  for (const std::uint32_t times : chosen_ids) EXPECT_GT(times, 100U);
}

// Of a chunk cut by 6 bits, at level 2.
TEST(GcompTable, AStaticTableHasTheRulesLevel) {
  Histogram histogram{{}, true};
  for (std::uint32_t i = 0; i < kStaticExponents; ++i) {
    histogram.counts[count_at(120 - i, 2)] = 256U >> kStaticShapes[0].exponents[i];
  }
  TableChoice choice;
  choose_table(histogram, {Keep::kLevel, 2}, choice);
  EXPECT_EQ(choice.id, 1U);
  EXPECT_EQ(choice.top, 120U);
  EXPECT_EQ(length_of(choice.lengths, 119, 2), 2U);
  EXPECT_EQ(length_of(choice.lengths, 119, 0), 0U);
}

}  // namespace
}  // namespace deltawire::gcomp::gcomp_table_test
