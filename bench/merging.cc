// How fast sorted lists of keys and values are merged and added up: PairMerger against a tree of std::merge
// and a heap. Built on Google Benchmark, whose options it takes. Every row is verified before it is
// measured: all three give the same bits.
//
//   merging --benchmark_filter='/8/'        names are <how>/<streams>/<one key of so many has a pair>
#include <algorithm>
#include <cstring>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/random.h"
#include "reduce/patterns/merge_pairs.h"

namespace deltawire::bench {
namespace {

constexpr std::size_t kPairs = 200000;  // of a stream

struct Pair {
  std::uint32_t key;
  float value;
};

struct Streams {
  std::vector<Pairs> lists;
  std::vector<std::vector<Pair>> pairs;  // the same, as std::merge likes them
  std::size_t count = 0;
};

// Keys by chance, with `gap` of them to each pair on average.
Streams draw(std::size_t streams, std::uint64_t gap) {
  Streams drawn;
  for (std::size_t s = 0; s < streams; ++s) {
    CounterRng random(s, gap);
    Pairs& list = drawn.lists.emplace_back();
    auto& pairs = drawn.pairs.emplace_back();
    for (std::uint64_t key = random.next() % gap; list.keys.size() < kPairs && key < 0xFFFFFFFF;
         key += 1 + random.next() % (2 * gap - 1)) {
      list.keys.push_back(static_cast<std::uint32_t>(key));
      list.values.push_back(static_cast<float>(random.next_uniform() - 0.5));
      pairs.push_back({list.keys.back(), list.values.back()});
    }
    drawn.count += list.keys.size();
  }
  return drawn;
}

void append(Pairs& sum, Pair pair) {
  if (!sum.keys.empty() && sum.keys.back() == pair.key) {
    sum.values.back() += pair.value;
  } else {
    sum.keys.push_back(pair.key);
    sum.values.push_back(pair.value);
  }
}

class ByWindows {
 public:
  void operator()(const Streams& streams, Pairs& sum) {
    lists_.assign(streams.lists.begin(), streams.lists.end());
    merger_.merge(lists_, sum);
  }

 private:
  std::vector<PairStream> lists_;
  PairMerger merger_;
};

// Neighbours are merged, and these again; equal keys stay in the order of streams and are added up at last.
class ByStdMerge {
 public:
  void operator()(const Streams& streams, Pairs& sum) {
    const std::vector<std::vector<Pair>>* level = &streams.pairs;
    for (std::size_t depth = 0; level->size() > 1; ++depth) {
      auto& merged = levels_[depth];
      merged.resize((level->size() + 1) / 2);
      for (std::size_t i = 0; i < merged.size(); ++i) {
        static const std::vector<Pair> kNone;
        const auto& left = (*level)[2 * i];
        const auto& right = 2 * i + 1 < level->size() ? (*level)[2 * i + 1] : kNone;
        merged[i].resize(left.size() + right.size());
        std::merge(left.begin(), left.end(), right.begin(), right.end(), merged[i].begin(),
                   [](const Pair& a, const Pair& b) { return a.key < b.key; });
      }
      level = &merged;
    }
    sum.keys.clear();
    sum.values.clear();
    for (const Pair& pair : level->front()) append(sum, pair);
  }

 private:
  std::vector<std::vector<Pair>> levels_[8];
};

class ByHeap {
 public:
  void operator()(const Streams& streams, Pairs& sum) {
    using Head = std::pair<std::uint32_t, std::size_t>;  // key, stream: equal keys in the order of streams
    std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
    next_.assign(streams.pairs.size(), 0);
    for (std::size_t s = 0; s < streams.pairs.size(); ++s) heads.emplace(streams.pairs[s][0].key, s);
    sum.keys.clear();
    sum.values.clear();
    while (!heads.empty()) {
      const std::size_t s = heads.top().second;
      heads.pop();
      append(sum, streams.pairs[s][next_[s]++]);
      if (next_[s] < streams.pairs[s].size()) heads.emplace(streams.pairs[s][next_[s]].key, s);
    }
  }

 private:
  std::vector<std::size_t> next_;
};

bool same_bits(const Pairs& a, const Pairs& b) {
  return a.keys == b.keys && a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(), sizeof(float) * a.values.size()) == 0;
}

template <class Merge>
void measure(benchmark::State& state, const Streams& streams) {
  Merge merge;
  Pairs sum;
  Pairs expected;
  merge(streams, sum);
  ByHeap()(streams, expected);
  if (!same_bits(sum, expected)) {
    state.SkipWithError("another sum than the heap's");
    return;
  }
  for (auto _ : state) {
    merge(streams, sum);
    benchmark::DoNotOptimize(sum.keys.data());
    benchmark::ClobberMemory();
  }
  state.counters["ns_a_pair"] =
      benchmark::Counter(static_cast<double>(streams.count) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void add_rows() {
  for (const std::size_t count : {2U, 4U, 8U}) {
    for (const std::uint64_t gap : {2U, 10U, 100U, 1000U, 10000U}) {
      const std::string end =
          std::string("/").append(std::to_string(count)).append("/").append(std::to_string(gap));
      const auto add = [&](const std::string& name, auto run) {
        benchmark::RegisterBenchmark((name + end).c_str(), [=](benchmark::State& state) {
          const Streams streams = draw(count, gap);
          run(state, streams);
        });
      };
      add("windows", measure<ByWindows>);
      add("std_merge", measure<ByStdMerge>);
      add("heap", measure<ByHeap>);
    }
  }
}

}  // namespace
}  // namespace deltawire::bench

int main(int count, char** arguments) {
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 2;
  deltawire::bench::add_rows();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
