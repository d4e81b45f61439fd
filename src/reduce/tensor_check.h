// Which tensors a reducer refuses, before anything of their bucket happens.
#pragma once

#include "deltawire/channel.h"
#include "deltawire/reducer.h"

namespace deltawire {

// Which tensors in key-value form a reducer takes.
struct PairRules {
  const Reducer& reducer;  // for its spec, in errors
  const Channel& channel;  // that encodes them first
  bool pattern_takes = false;
  bool folds = false;

  bool take(const Named& tensor, std::uint64_t step) const {
    return pattern_takes && channel.takes_pairs(tensor, step);
  }
};

// kInvalidArgument, kUnsupportedDType.
Status check_tensors(const Bucket& bucket, const Step& step, const PairRules& pairs);

}  // namespace deltawire
