#include "reduce/tensor_check.h"

#include <string>

namespace deltawire {
namespace {

// What takes tensors in key-value form.
std::string codecs_for_pairs() {
  std::string names;
  for (const CodecInfo* codec : registered_codecs()) {
    if (!codec->key_value || codec->error_feedback) continue;
    names += (names.empty() ? "" : ", ") + std::string(codec->name);
  }
  return "take a codec that has the form and keeps no residual (" + names +
         "), in the pattern direct or gather";
}

}  // namespace

Status check_tensors(const Bucket& bucket, const Step& step, const PairRules& pairs) {
  std::size_t key_value_tensors = 0;
  for (const Named& tensor : bucket.tensors) {
    const auto named = [&] { return "tensor '" + std::string(tensor.name) + "'"; };
    if (dtype_bytes(tensor.tensor.dtype) == 0) {
      return fail(ErrorCode::kUnsupportedDType,
                  named() + " is of an unknown dtype; give float32, bfloat16 or float16");
    }
    if (!tensor.tensor.has_keys()) continue;
    ++key_value_tensors;
    if (pairs.pattern_takes && pairs.folds) {
      return fail(ErrorCode::kInvalidArgument,
                  named() + " is in key-value form, which can't wait for a later step as a folding revert " +
                      "promises; take the exact revert, which leaves a failed step's input to you");
    }
    if (!pairs.take(tensor, step.number)) {
      return fail(ErrorCode::kInvalidArgument, named() + " is in key-value form, which " +
                                                   pairs.reducer.spec() + " does not take; " +
                                                   codecs_for_pairs());
    }
  }
  if (key_value_tensors != bucket.pair_means.size()) {
    return fail(ErrorCode::kInvalidArgument,
                "the bucket has " + std::to_string(key_value_tensors) + " key-value tensors and room for " +
                    std::to_string(bucket.pair_means.size()) + " means; give pair_means one for each");
  }
  return {};
}

}  // namespace deltawire
