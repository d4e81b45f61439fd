// Patches between two versions of bfloat16 weights, next to what is usual: positions as int32 with new values
// of 16 bits, gaps of variable length with new values, and XOR with zstd. Built on Google Benchmark, whose
// options it takes. Every row is verified before it is measured: it gives the new weights, bit for bit.
//
//   patches [OLD NEW]       raw little-endian bfloat16; without files, pairs as fine-tuning makes them
//
// Bytes per second are those of one version; bits_a_change has the head of the patch in it.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#if DELTAWIRE_HAS_ZSTD
#include <zstd.h>
#endif

#include "base/little_endian.h"
#include "base/random.h"
#include "base/varint.h"
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

// One way to send the new weights to who has the old ones.
struct Way {
  std::string name;
  std::function<void(const Pair&, Patch&)> make;
  std::function<void(const Patch&, const Weights&, Weights&)> apply;  // the old weights may be the new ones
};

void ours_make(const Pair& pair, Patch& patch) {
  patch = *make_patch(std::as_bytes(std::span(pair.from)), std::as_bytes(std::span(pair.to)),
                      WeightType::kBFloat16);
}

void ours_apply(const Patch& patch, const Weights& from, Weights& to) {
  if (!apply_patch(patch, std::as_bytes(std::span(from)), WeightType::kBFloat16,
                   std::as_writable_bytes(std::span(to)))) {
    to.clear();
  }
}

template <class Each>
void each_change(const Pair& pair, const Each& each) {
  for (std::size_t i = 0; i < pair.from.size(); ++i) {
    if (pair.from[i] != pair.to[i]) each(i);
  }
}

void append_value(Patch& patch, std::uint16_t value) {
  patch.push_back(static_cast<std::byte>(value & 0xFF));
  patch.push_back(static_cast<std::byte>(value >> 8));
}

void indices_make(const Pair& pair, Patch& patch) {
  patch.clear();
  each_change(pair, [&](std::size_t i) {
    for (unsigned shift = 0; shift < 32; shift += 8)
      patch.push_back(static_cast<std::byte>(i >> shift & 0xFF));
    append_value(patch, pair.to[i]);
  });
}

void indices_apply(const Patch& patch, const Weights& from, Weights& to) {
  if (&from != &to) to = from;
  for (std::size_t at = 0; at < patch.size(); at += 6) {
    to[load_le<std::uint32_t>(patch.data() + at)] = load_le<std::uint16_t>(patch.data() + at + 4);
  }
}

void varints_make(const Pair& pair, Patch& patch) {
  patch.clear();
  std::size_t next = 0;
  each_change(pair, [&](std::size_t i) {
    append_varint(patch, i - next);
    append_value(patch, pair.to[i]);
    next = i + 1;
  });
}

void varints_apply(const Patch& patch, const Weights& from, Weights& to) {
  if (&from != &to) to = from;
  Bytes rest(patch);
  std::size_t next = 0;
  while (!rest.empty()) {
    next += *take_varint(rest, UINT32_MAX);
    to[next++] = load_le<std::uint16_t>(rest.data());
    rest = rest.subspan(2);
  }
}

#if DELTAWIRE_HAS_ZSTD
void zstd_make(const Pair& pair, Patch& patch) {
  Weights changes(pair.from.size());
  for (std::size_t i = 0; i < changes.size(); ++i) changes[i] = pair.from[i] ^ pair.to[i];
  patch.resize(ZSTD_compressBound(2 * changes.size()));
  patch.resize(ZSTD_compress(patch.data(), patch.size(), changes.data(), 2 * changes.size(), 3));
}

void zstd_apply(const Patch& patch, const Weights& from, Weights& to) {
  Weights changes(from.size());
  ZSTD_decompress(changes.data(), 2 * changes.size(), patch.data(), patch.size());
  for (std::size_t i = 0; i < changes.size(); ++i) to[i] = from[i] ^ changes[i];
}
#endif

std::vector<Way> all_ways() {
  std::vector<Way> ways = {{"patch", ours_make, ours_apply},
                           {"int32_and_bf16", indices_make, indices_apply},
                           {"varint_and_bf16", varints_make, varints_apply}};
#if DELTAWIRE_HAS_ZSTD
  ways.push_back({"xor_zstd3", zstd_make, zstd_apply});
#endif
  return ways;
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

void measure_make(benchmark::State& state, const Pair& pair, const Way& way) {
  Patch patch;
  for (auto _ : state) {
    way.make(pair, patch);
    benchmark::DoNotOptimize(patch.data());
    benchmark::ClobberMemory();
  }
  report(state, pair, patch);
}

void measure_apply(benchmark::State& state, const Pair& pair, const Way& way, bool in_place) {
  Patch patch;
  way.make(pair, patch);
  Weights out(pair.from.size());
  way.apply(patch, pair.from, out);
  if (out != pair.to) return state.SkipWithError("other weights than the new ones");
  for (auto _ : state) {
    if (in_place) {
      state.PauseTiming();
      out = pair.from;
      state.ResumeTiming();
    }
    way.apply(patch, in_place ? out : pair.from, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  report(state, pair, patch);
}

void add_rows(const Pair& pair) {
  static const std::vector<Way> kWays = all_ways();
  for (const Way& way : kWays) {
    const std::string name = way.name + "/" + pair.name;
    benchmark::RegisterBenchmark((name + "/make").c_str(),
                                 [&](benchmark::State& state) { measure_make(state, pair, way); });
    benchmark::RegisterBenchmark((name + "/apply").c_str(),
                                 [&](benchmark::State& state) { measure_apply(state, pair, way, false); });
    if (way.name == "xor_zstd3") continue;
    benchmark::RegisterBenchmark((name + "/in_place").c_str(),
                                 [&](benchmark::State& state) { measure_apply(state, pair, way, true); });
  }
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
