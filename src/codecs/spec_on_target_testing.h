// For tests that compare the kernels of a target with the reference's, through the codecs of specs.
#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"
#include "codecs/dispatch.h"
#include "codecs/target_testing.h"

namespace deltawire::testing {

using SpecOnTarget = std::tuple<std::string, TargetId>;

// Every spec with every target that its codec has kernels for.
inline std::vector<SpecOnTarget> on_every_target(const std::vector<std::string>& specs) {
  std::vector<SpecOnTarget> cases;
  for (const std::string& spec : specs) {
    const auto codec = codec_of(spec);
    for (const TargetId target : beyond_reference()) {
      if (has_kernels(codec->info(), target)) cases.emplace_back(spec, target);
    }
  }
  return cases;
}

inline std::string spec_on_target_name(const ::testing::TestParamInfo<SpecOnTarget>& chosen) {
  const auto& [spec, target] = chosen.param;
  return test_name(spec) + "_" + std::string(target_info(target).name);
}

// The codec of a spec, with the reference's kernels and with the target's.
class OnTarget : public ::testing::TestWithParam<SpecOnTarget> {
 protected:
  void SetUp() override {
    const auto& [spec, target] = GetParam();
    skip_unless_runnable(target);
    if (IsSkipped()) return;
    reference_ = *make_codec(spec, TargetId::kReference);
    other_ = *make_codec(spec, target);
  }

  std::unique_ptr<const Codec> reference_;
  std::unique_ptr<const Codec> other_;
};

}  // namespace deltawire::testing
