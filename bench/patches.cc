// Patches between two versions of bfloat16 weights. Built on Google Benchmark, whose options it takes. Every
// row is verified before it is measured: it gives the new weights, bit for bit.
//
//   patches [OLD NEW]       raw little-endian bfloat16; without files, pairs as fine-tuning makes them
//
// Bytes per second are those of one version; bits_a_change has the head of the patch in it.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/random.h"
#include "deltawire/patch.h"

namespace deltawire::bench {
namespace {

using Patch = std::vector<std::byte>;
using Weights = std::vector<std::uint16_t>;

struct Pair {
  std::string name;
  Weights from;
  Weights to;
  std::uint64_t changes = 0;
};

void count_changes(Pair& pair) {
  for (std::size_t i = 0; i < pair.from.size(); ++i) pair.changes += pair.from[i] == pair.to[i] ? 0U : 1U;
}

Weights file_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  Weights weights(bytes.size() / 2);
  std::memcpy(weights.data(), bytes.data(), 2 * weights.size());
  return weights;
}

std::uint16_t rounded_to_bfloat16(double value) {
  const auto single = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &single, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Normal weights of 0.02, and a step of `rate` times a normal number, in float32.
Pair fine_tuned(const char* name, double rate) {
  constexpr std::size_t kWeights = 1 << 24;
  Pair pair{name, Weights(kWeights), Weights(kWeights)};
  CounterRng random(1, 1);
  const auto normal = [&random] {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - random.next_uniform()));
    return radius * std::cos(6.283185307179586 * random.next_uniform());
  };
  for (std::size_t i = 0; i < kWeights; ++i) {
    const double weight = 0.02 * normal();
    pair.from[i] = rounded_to_bfloat16(weight);
    pair.to[i] = rounded_to_bfloat16(weight + rate * normal());
  }
  count_changes(pair);
  return pair;
}

Patch patch_of(const Pair& pair) {
  return *make_patch(std::as_bytes(std::span(pair.from)), std::as_bytes(std::span(pair.to)),
                     WeightType::kBFloat16);
}

// The old weights may be the new ones.
bool apply(const Patch& patch, const Weights& from, Weights& to) {
  return apply_patch(patch, std::as_bytes(std::span(from)), WeightType::kBFloat16,
                     std::as_writable_bytes(std::span(to)))
      .has_value();
}

void report(benchmark::State& state, const Pair& pair, const Patch& patch) {
  const auto version_bytes = static_cast<double>(2 * pair.from.size());
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) *
                          static_cast<std::int64_t>(2 * pair.from.size()));
  state.counters["changed_percent"] = 100.0 * 2.0 * static_cast<double>(pair.changes) / version_bytes;
  state.counters["times_smaller"] = version_bytes / static_cast<double>(patch.size());
  if (pair.changes != 0) {
    state.counters["bits_a_change"] =
        8.0 * static_cast<double>(patch.size()) / static_cast<double>(pair.changes);
  }
}

void measure_make(benchmark::State& state, const Pair& pair) {
  Patch patch;
  for (auto _ : state) {
    patch = patch_of(pair);
    benchmark::DoNotOptimize(patch.data());
    benchmark::ClobberMemory();
  }
  report(state, pair, patch);
}

void measure_apply(benchmark::State& state, const Pair& pair, bool in_place) {
  const Patch patch = patch_of(pair);
  Weights out(pair.from.size());
  if (!apply(patch, pair.from, out) || out != pair.to) {
    return state.SkipWithError("other weights than the new ones");
  }
  for (auto _ : state) {
    if (in_place) {
      state.PauseTiming();
      out = pair.from;
      state.ResumeTiming();
    }
    (void)apply(patch, in_place ? out : pair.from, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  report(state, pair, patch);
}

void add_rows(const Pair& pair) {
  const std::string name = "patch/" + pair.name;
  benchmark::RegisterBenchmark((name + "/make").c_str(),
                               [&](benchmark::State& state) { measure_make(state, pair); });
  benchmark::RegisterBenchmark((name + "/apply").c_str(),
                               [&](benchmark::State& state) { measure_apply(state, pair, false); });
  benchmark::RegisterBenchmark((name + "/in_place").c_str(),
                               [&](benchmark::State& state) { measure_apply(state, pair, true); });
}

}  // namespace
}  // namespace deltawire::bench

int main(int count, char** arguments) {
  using namespace deltawire::bench;
  benchmark::Initialize(&count, arguments);
  if (count != 1 && count != 3) {
    std::cerr << "usage: patches [OLD NEW]: raw bfloat16\n";
    return 2;
  }
  std::vector<Pair> pairs;
  if (count == 3) {
    pairs.push_back({"files", file_of(arguments[1]), file_of(arguments[2])});
    count_changes(pairs[0]);
    // Longer than the caches.
    Pair& pair = pairs[0];
    while (pair.from.size() < 1 << 23 && !pair.from.empty()) {
      pair.from.insert(pair.from.end(), pair.from.begin(), pair.from.end());
      pair.to.insert(pair.to.end(), pair.to.begin(), pair.to.end());
      pair.changes *= 2;
    }
  } else {
    pairs.push_back(fine_tuned("unchanged", 0.0));
    pairs.push_back(fine_tuned("rare", 2e-7));
    pairs.push_back(fine_tuned("some", 1.4e-6));
    pairs.push_back(fine_tuned("many", 8e-6));
  }
  for (const Pair& pair : pairs) add_rows(pair);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
