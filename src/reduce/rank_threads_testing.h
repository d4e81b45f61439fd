// For tests: the ranks of an in-process mesh, each on a thread of its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
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

// Whether ranks of the pattern send what is their own alone, so that a revert can fold it.
inline bool sends_own(std::string_view pattern) {
  return !pattern.starts_with("ring") && !pattern.starts_with("hierarchical");
}

// "hierarchical" of "hierarchical:group=2": in names of tests.
inline std::string pattern_name(const ::testing::TestParamInfo<std::string>& pattern) {
  return pattern.param.substr(0, pattern.param.find(':'));
}

// A failed step's input waits.
inline ReducerOptions folding() {
  ReducerOptions options;
  options.revert = Revert::kFold;
  return options;
}

}  // namespace deltawire
