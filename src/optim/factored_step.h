// Adam and AdamW with a second moment of rank one, of exact gradients: the servers' form of
// StepRule::kFactoredSecondMoment (deltawire/optimizer_rules.h). Whatever gradient is stepped by, a codec's
// spikes among it, the second moment is that of the mean squares by lines which are given beside it.
#pragma once

#include <span>

#include "deltawire/optimizer.h"
#include "optim/lines.h"
#include "optim/step_rules.h"

namespace deltawire {

struct FactoredStep {
  const Lines& lines;
  std::span<const float> squares;  // of the exact gradient's lines; what is below 0 or NaN counts as 0
  // As of OptimizerRule.
  double most_rms = 0;
  double most_change = 0;
  double longest_step = 0;
};

// Step number t > 0. In a.second is the second moment of every element; of another rank than one, as steps
// without this rule leave it, the means of its lines count.
void step_adam_factored(const OptimizerSettings& settings, const StepArrays& a, std::uint64_t t,
                        const FactoredStep& by);

}  // namespace deltawire
