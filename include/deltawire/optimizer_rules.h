// Codecs and optimizers: which go together, what else an optimizer's step must do where they don't, and what
// training loses where it doesn't. One table for all doors; docs/results/training/late-codecs.md has the
// measurements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/optimizer.h"
#include "deltawire/spec.h"

namespace deltawire {

enum class OptimizerFamily : std::uint8_t {
  kSgd,  // with any momentum, Nesterov's included
  kAdaGrad,
  kRmsProp,
  kAdam,
  kAdamW,
  kNAdam,
  kAdafactor,
  kLion,
  kMuon,
  kScheduleFree,
  kOther,
};

// An optimizer as the table knows it.
struct DELTAWIRE_API OptimizerTraits {
  OptimizerFamily family = OptimizerFamily::kOther;
  std::string name;     // in sentences: "AdamW"
  double momentum = 0;  // the highest of any tensor's: b = momentum b + g
  double beta1 = 0;     // likewise: m = beta1 m + (1 - beta1) g

  // By the name of its class: "SGD", "AdamW", "AdamWScheduleFree". With its module's before it, "apex.AdamW",
  // it is another class, whose state may be another one.
  static OptimizerTraits named(std::string_view name, double momentum, double beta1);
  static OptimizerTraits of(const OptimizerSettings& settings);
};

// How the tensors are stepped whose gradients a codec sends late, or as spikes.
enum class StepRule : std::uint8_t {
  kAsItIs,
  kMomentumAsRate,      // SGD without momentum, at a rate MomentumRate::times() as high
  kWithoutFirstMoment,  // Adam with beta1 = 0, at `rate_share` of the rate
  // Adam with `beta1` at most, its v of rank one: from the mean squares of the ranks' gradients by rows and
  // by columns (Shazeer and Stern: Adafactor, 2018, section 3).
  kFactoredSecondMoment,
};

// Where the optimizer steps, for what a warning tells to write.
enum class OptimizerPlace : std::uint8_t {
  kRegister,    // by decoded gradients: register of Python's deltawire.torch
  kLocalSteps,  // by a rank's own gradients, whose changes are exchanged after each step
  kServer,      // a parameter server
  kOuter,       // the outer optimizer of local steps, which gets the mean of ranks' changes
  kOwnProgram,  // a program that exchanges by a Session or a Reducer
};

// What the table says of one of a spec's rules and an optimizer. Its sentences are one line each, or empty.
struct OptimizerRule {
  StepRule rule = StepRule::kAsItIs;
  double beta1 = 0;
  double rate_share = 1;
  double pull = 0;  // for Spec::with_pull; 0: as the spec says
  // For Spec::with_first_steps: while a network first learns, its gradients change faster than a codec with
  // feedback sends them. 0: as the spec says.
  std::uint64_t first_steps = 0;
  // Of kFactoredSecondMoment: a row's step has at most a root mean square of `most_rms` times the rate, or of
  // `most_change` times the tensor's own if that is more, and its elements at most `longest_step` times that.
  double most_rms = 0;
  double most_change = 0;
  double longest_step = 0;
  double least_scale = 0;  // of a row while it is coded, relative to the largest; 0: it is coded as it is

  std::string warning;  // where the rule is not applied, or there is none
  std::string remark;   // of what training loses in spite of the rule
  std::string refusal;  // of an optimizer that was given to be stepped by a rule, and has none
};

DELTAWIRE_API OptimizerRule optimizer_rule(const SpecRule& rule, const OptimizerTraits& optimizer,
                                           OptimizerPlace place);

// What a rule makes of an optimizer's settings in this step of a run (from 0). The rest of
// kFactoredSecondMoment is whoever's who steps.
DELTAWIRE_API OptimizerSettings settings_by(const OptimizerRule& rule, OptimizerSettings settings,
                                            std::uint64_t step);

// The warnings of a spec's rules, each once; where the table's rules are applied, of those that have none.
DELTAWIRE_API std::vector<std::string> optimizer_warnings(const Spec& spec, const OptimizerTraits& optimizer,
                                                          OptimizerPlace place, bool rules_apply = false);

// The spec, with means as fine as the table's rules need them, where it leaves that open: how a step is coded
// once training has begun.
DELTAWIRE_API Result<Spec> with_means_for(const Spec& spec, const OptimizerTraits& optimizer);

// The same, with the first steps as the table's rules need them, unless among so many ranks `gather` sends
// more for them than an all-reduce of float32 does: what an exchange is made of.
DELTAWIRE_API Result<Spec> fitted_to(const Spec& spec, const OptimizerTraits& optimizer, int world_size);

// The learning rate in place of a momentum. A momentum of m adds up to 1 / (1 - m) of each gradient, spread
// over the next steps; error feedback spreads them as well.
struct DELTAWIRE_API MomentumRate {
  double momentum = 0;  // 0 <= momentum < 1
  double dampening = 0;

  // The factor in step 0, 1, ...: it rises like a velocity to half of 1 / (1 - m), and then to three quarters
  // of that, over rise_steps(). Never below 1.
  double times(std::uint64_t step) const noexcept;
  double rise_steps() const noexcept;

  // A factor for all steps.
  double constant() const noexcept;
};

}  // namespace deltawire
