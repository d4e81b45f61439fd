// For tests of kernels: the targets of this build, and a word for those that can't run here.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "codecs/dispatch.h"

namespace deltawire::testing {

inline const KernelTarget& target_info(TargetId target) {
  return kernel_targets()[static_cast<std::size_t>(target)];
}

// All but the reference; a build may have none.
inline std::vector<TargetId> beyond_reference() {
  std::vector<TargetId> targets;
  for (std::size_t i = 1; i < kernel_targets().size(); ++i) targets.push_back(static_cast<TargetId>(i));
  return targets;
}

// Those that this CPU runs, the reference first.
inline std::vector<TargetId> runnable_targets() {
  std::vector<TargetId> targets{TargetId::kReference};
  for (const TargetId target : beyond_reference()) {
    if (target_info(target).runs_here) targets.push_back(target);
  }
  return targets;
}

inline std::string target_name(const ::testing::TestParamInfo<TargetId>& info) {
  return std::string(target_info(info.param).name);
}

// Skips the test, aloud, where this CPU lacks the target: CTest looks for these words. For SetUp().
inline void skip_unless_runnable(TargetId target) {
  const KernelTarget& info = target_info(target);
  if (!info.runs_here) GTEST_SKIP() << "this CPU can't run the target " << info.name << ": NOT tested here";
}

}  // namespace deltawire::testing
