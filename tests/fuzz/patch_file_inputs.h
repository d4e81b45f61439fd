// What fuzz_patch_file and make_corpus must agree on: the models that patch files are for.
#pragma once

#include <string>

#include "model/model_testing.h"

namespace deltawire::fuzz {

// Changed and unchanged tensors; a removed, an added and a reshaped one if `reshaped`, so that a header is
// carried.
inline std::string patch_file_model(bool after, bool reshaped) {
  const std::string weights = testing::random_bytes(300, 1);
  std::vector<testing::TestTensor> tensors = {
      {"w", "BF16", "150", after ? testing::changed_bytes(weights, 20) : weights},
      {"n", "F32", "2", testing::random_bytes(8, 2)}};
  if (reshaped) tensors[1].shape = after ? "1,2" : "2";
  if (reshaped) tensors.push_back({after ? "added" : "gone", "I8", "3", "abc"});
  return testing::model_bytes(tensors);
}

}  // namespace deltawire::fuzz
