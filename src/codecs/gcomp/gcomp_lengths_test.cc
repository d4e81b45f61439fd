// The length limiter against a search over all codes, and what a table says about a histogram.
#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "base/property_testing.h"
#include "base/random.h"
#include "codecs/gcomp/gcomp_static_tables.h"
#include "codecs/gcomp/gcomp_table.h"

namespace deltawire::gcomp {
namespace {

constexpr std::uint32_t kComplete = 256;  // the sum of 2^(8 - length) of a complete code

// Lengths of symbols 0, 1, ... with these weights.
std::vector<std::uint32_t> limited(const std::vector<std::uint32_t>& weights) {
  std::vector<SymbolWeight> symbols;
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
  const auto drawn = testing::drawn_list(testing::drawn(2, kMaxCodedSymbols + kLevels + 1), 1, 300000);
  const std::vector<std::uint32_t> weights(drawn.begin(), drawn.end());
  const auto lengths = limited(weights);
  HOLDS(kraft(lengths) == kComplete);
  HOLDS(*std::max_element(lengths.begin(), lengths.end()) <= kMaxCodeBits);
}

TEST(GcompLengths, StaticShapesAreCompleteCodes) {
  for (std::uint32_t id = 1; id <= kStaticTables; ++id) {
    CodeLengths lengths;
    static_lengths(id, 120, lengths);
    std::uint32_t sum = 0;
    for (const std::uint8_t bits : lengths.bits) sum += bits > 0 ? kComplete >> bits : 0;
    EXPECT_EQ(sum, kComplete) << id;
  }
  EXPECT_FALSE(static_fits(11));
  EXPECT_TRUE(static_fits(12));
  EXPECT_TRUE(static_fits(254));
  EXPECT_FALSE(static_fits(255));
}

// The histogram {symbol, count}.
Histogram histogram_of(const std::vector<SymbolWeight>& counts, bool complete) {
  Histogram histogram{{}, complete};
  for (const SymbolWeight& entry : counts) histogram.counts[entry.symbol] = entry.weight;
  return histogram;
}

CodeLengths chosen(const Histogram& histogram, const Rule& rule) {
  TableChoice choice;
  choose_table(histogram, rule, choice);
  return choice.lengths;
}

TEST(GcompTable, RareSymbolsAreEscaped) {
  const std::uint32_t frequent = symbol_of(120, 0);
  const std::uint32_t rare = symbol_of(80, 0);
  const Rule rule{Keep::kEverything, 0};
  EXPECT_GT(chosen(histogram_of({{1023, frequent}, {1, rare}}, true), rule).bits[rare], 0);
  const CodeLengths lengths = chosen(histogram_of({{1024, frequent}, {1, rare}}, true), rule);
  EXPECT_EQ(lengths.bits[rare], 0);
  EXPECT_EQ(lengths.bits[kPlainSymbols], 1);
  EXPECT_EQ(lengths.bits[kPlainSymbols + 1], 0);
}

TEST(GcompTable, ASampleLeavesTheDoorOpenForEverything) {
  const auto escapes = [](const Rule& rule) {
    const CodeLengths lengths = chosen(histogram_of({{100, symbol_of(120, 0)}}, false), rule);
    std::vector<bool> has;
    has.reserve(kLevels);
    for (std::uint32_t level = 0; level < kLevels; ++level) has.push_back(lengths.bits[1024 + level] > 0);
    return has;
  };
  EXPECT_EQ(escapes({Keep::kLevel, 3}), (std::vector<bool>{true, false, false, false}));
  EXPECT_EQ(escapes({Keep::kEverything, 0}), (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(escapes({Keep::kSignificance, 0}), (std::vector<bool>{true, true, true, true}));
}

// An escape that nothing was counted for weighs as much as one symbol, not nothing.
TEST(GcompTable, AnEscapeWeighsAtLeastOne) {
  const Histogram two = histogram_of({{2, symbol_of(120, 0)}, {2, symbol_of(121, 0)}}, false);
  const CodeLengths lengths = chosen(two, {Keep::kSignificance, 0});
  EXPECT_EQ(lengths.bits[symbol_of(120, 0)], 2);
  EXPECT_EQ(lengths.bits[symbol_of(121, 0)], 2);
  for (std::uint32_t level = 0; level < kLevels; ++level) {
    EXPECT_EQ(lengths.bits[kPlainSymbols + level], 3) << level;
  }
}

TEST(GcompTable, ASingleSymbolHasTheHighestLevelsEscapeBesideIt) {
  const Histogram one = histogram_of({{1000, symbol_of(120, 0)}}, true);
  const std::pair<Keep, std::uint32_t> expected[] = {
      {Keep::kLevel, 0}, {Keep::kEverything, 1}, {Keep::kSignificance, 3}};
  for (const auto& [keep, level] : expected) {
    const CodeLengths lengths = chosen(one, {keep, 0});
    for (std::uint32_t i = 0; i < kLevels; ++i) {
      EXPECT_EQ(lengths.bits[kPlainSymbols + i], i == level ? 1 : 0) << level << " " << i;
    }
  }
}

// Bits of table and codes as spec.md, 6.5, counts them.
std::uint64_t bits_with(const Histogram& histogram, const CodeLengths& lengths, std::uint64_t table_bytes) {
  std::uint64_t bits = 8 * table_bytes;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    const std::uint32_t own = lengths.bits[symbol_of(exponent, 0)];
    bits += histogram.counts[symbol_of(exponent, 0)] * (own > 0 ? own : lengths.bits[kPlainSymbols] + 8U);
  }
  return bits;
}

// Counts of a uniform chunk: near the shape of a static table, or of any shape; sometimes with outliers.
Histogram random_histogram(CounterRng& random) {
  Histogram histogram{{}, true};
  const auto count_of = [&](std::uint32_t exponent) -> std::uint32_t& {
    return histogram.counts[symbol_of(exponent, 0)];
  };
  const auto below = [&random](std::uint64_t bound) {
    return static_cast<std::uint32_t>(random.next() % bound);
  };
  const std::uint32_t top = below(4) == 0 ? 240 + below(15) : 12 + below(243);
  const StaticShape& shape = kStaticShapes[below(kStaticTables)];
  const std::uint32_t noise = 1 + below(6);
  for (std::uint32_t i = 0; i < kStaticExponents && i <= top; ++i) {
    count_of(top - i) = ((256U >> shape.exponents[i]) + below(noise)) / (1 + below(3));
  }
  count_of(0) = below(2) * (256U >> shape.zero);
  if (below(3) == 0) count_of(std::min(top + 1 + below(4), 254U)) += 1;
  if (below(4) == 0) count_of(255) += 1 + below(3);
  // Two symbols at least, as one alone has an escape beside it, which hangs on the rule.
  count_of(top) += 1;
  count_of(top - 1) += 1;
  return histogram;
}

std::uint32_t highest_below_255(const Histogram& histogram) {
  std::uint32_t exponent = 254;
  while (exponent > 0 && histogram.counts[symbol_of(exponent, 0)] == 0) --exponent;
  return exponent;
}

// The table of a uniform chunk of one block is the smallest of all, ties to the first: found by trying them.
TEST(GcompTable, AUniformChunkTakesTheSmallestTable) {
  CounterRng random(9);
  std::uint32_t chosen_ids[kStaticTables + 1] = {};
  for (int trial = 0; trial < 20000; ++trial) {
    Histogram histogram = random_histogram(random);
    TableChoice own;
    choose_table(histogram, {Keep::kEverything, 0}, own);  // a mixed chunk always has its own
    std::byte bytes[kMaxTableBytes];
    std::uint64_t smallest = bits_with(histogram, own.lengths, write_table(own, false, bytes));
    std::pair<std::uint32_t, std::uint32_t> expected{0, 0};
    const std::uint32_t highest = highest_below_255(histogram);
    for (std::uint32_t id = 1; id <= kStaticTables; ++id) {
      for (std::uint32_t base = highest + 1; base + 3 >= highest; --base) {
        if (base < 12 || base > 254) continue;
        CodeLengths lengths;
        static_lengths(id, base, lengths);
        const std::uint64_t bits = bits_with(histogram, lengths, 1);
        if (bits >= smallest) continue;
        smallest = bits;
        expected = {id, base};
      }
    }
    TableChoice choice;
    choose_table(histogram, {Keep::kLevel, 0}, choice);
    ASSERT_EQ(std::make_pair(choice.id, choice.base), expected) << trial;
    ++chosen_ids[choice.id];
    histogram.complete = false;
    choose_table(histogram, {Keep::kLevel, 0}, choice);
    ASSERT_EQ(choice.id, 0U);
  }
  for (const std::uint32_t times : chosen_ids) EXPECT_GT(times, 100U);
}

TEST(GcompTable, AtMost192SymbolsHaveCodesTheMostFrequentOnes) {
  std::vector<SymbolWeight> counts;
  counts.reserve(250);
  for (std::uint32_t i = 0; i < 250; ++i) counts.push_back({i < 50 ? 7U : 8U, symbol_of(i + 1, 0)});
  const CodeLengths lengths = chosen(histogram_of(counts, true), {Keep::kLevel, 0});
  std::uint32_t coded = 0;
  for (std::uint32_t i = 0; i < 250; ++i) coded += lengths.bits[symbol_of(i + 1, 0)] > 0 ? 1U : 0U;
  EXPECT_EQ(coded, 192U);
  for (std::uint32_t i = 0; i < 50; ++i) EXPECT_EQ(lengths.bits[symbol_of(i + 1, 0)], 0);
  EXPECT_EQ(lengths.bits[symbol_of(250, 0)], 0) << "of equally frequent ones the lowest";
  EXPECT_GT(lengths.bits[symbol_of(51, 0)], 0);
}

}  // namespace
}  // namespace deltawire::gcomp
