// For tests: the ranks of an in-process mesh, each on a thread of its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "deltawire/connect.h"
#include "reduce/wakeable_reducer.h"

namespace deltawire {

inline Deadline in_seconds(int seconds) {
  return Clock::now() + std::chrono::seconds(seconds);
}

inline void run_ranks(int world, const std::vector<LinkOptions>& links,
                      const std::function<void(int, Transport&)>& body) {
  auto mesh = connect_inproc(world, links);
  ASSERT_TRUE(mesh) << mesh.error().message;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] { body(rank, *(*mesh)[static_cast<std::size_t>(rank)]); });
  }
  for (std::thread& thread : threads) thread.join();
}

inline std::unique_ptr<WakeableReducer> reducer_of(std::string_view spec,
                                                   const ReducerOptions& options = {}) {
  auto made = make_wakeable_reducer(spec, options);
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

using Reducers = std::vector<std::unique_ptr<WakeableReducer>>;

inline Reducers reducers_of(std::string_view spec, int world, const ReducerOptions& options = {}) {
  Reducers reducers;
  for (int rank = 0; rank < world; ++rank) reducers.push_back(reducer_of(spec, options));
  return reducers;
}

inline std::vector<std::vector<std::byte>> states(const Reducers& reducers) {
  std::vector<std::vector<std::byte>> all;
  for (const auto& reducer : reducers) all.push_back(*reducer->save());
  return all;
}

// Tensors of so many elements, one behind the other.
struct Layers {
  explicit Layers(const std::vector<std::size_t>& counts)
      : values(std::accumulate(counts.begin(), counts.end(), std::size_t{0})) {
    names.reserve(counts.size());
    std::size_t at = 0;
    for (const std::size_t count : counts) {
      names.push_back("layer" + std::to_string(names.size()));
      tensors.push_back({names.back(), {values.data() + at, count, DType::kF32}, 0});
      at += count;
    }
  }
  std::vector<float> values;
  std::vector<std::string> names;
  std::vector<Named> tensors;
};

// Whether ranks of the pattern send what is their own alone, so that a revert can fold it.
inline bool sends_own(std::string_view pattern) {
  return !pattern.starts_with("ring") && !pattern.starts_with("hierarchical");
}

// "hierarchical" of "hierarchical:group=2": in names of tests.
inline std::string pattern_name(const ::testing::TestParamInfo<std::string>& pattern) {
  return pattern.param.substr(0, pattern.param.find(':'));
}

// Values that are not finite pass.
inline ReducerOptions passing() {
  ReducerOptions options;
  options.policy.nonfinite = NonFinite::kPass;
  return options;
}

// A failed step's input waits.
inline ReducerOptions folding() {
  ReducerOptions options;
  options.revert = Revert::kFold;
  return options;
}

}  // namespace deltawire
