#include "deltawire/optimizer_rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "reduce/optimizer_table.h"

namespace deltawire {
namespace {

// All codecs, by id.
constexpr auto kRows = std::to_array<CodecRow>({
    {"fp32"},
    {"bf16"},
    {"3lc", Arrival::kSpikes},
    {"sbc", Arrival::kLate},
    {"gcomp"},
    {"fastsgd"},
    {"int8"},
    {"randomk", Arrival::kLate},
    {"onebit", Arrival::kLate},
    {"terngrad"},
    {"qsgd"},
    {"natural"},
    {"signsgd", Arrival::kLate},
    {"topk", Arrival::kLate},
    {"threshold"},
    {"dropping", Arrival::kLate},
    {"fp16"},
    {"fp8"},
    {"blockint"},
    {"truncate"},
    {"zstd"},
    {"zlib"},
    {"logquant"},
    {"sketchml"},
    {"twobit", Arrival::kLate, 1, true},
    {"fp4"},
});

// Of momentum m as a rate, in units of 1 / (1 - m), measured with 0.9: a half trains from the first step on,
// 0.7 doesn't; three quarters do after a rise of 20 (with 10 two of 15 seeds diverged); the whole diverges at
// any time.
constexpr double kFirstRateShare = 0.5;
constexpr double kLastRateShare = 0.75;
constexpr double kRise = 20;

// Adam without its mean over steps has longer ones: at the highest rates that fp32 trains with, the whole
// rate makes signs diverge.
constexpr double kRateShareWithoutFirstMoment = 0.75;

// Of 3lc under Adam: any delay that beta1 and the second coding of means add to that of the residual counts;
// and of late codecs even more.
constexpr double kFactoredBeta1 = 0.5;
constexpr double kLateFactoredBeta1 = 0;
constexpr double kFactoredPull = 0.5;

// Adam's own second moment bounds a step, because it has seen what the first one has. At twice its best rate
// LeNet-5 lost 13 to 34 points without a bound, 3 to 5 with that of elements alone, and none with both. Where
// the rate is low for the weights, as nanoGPT's is, such bounds only cut off what has arrived.
constexpr double kMostRms = 1;
constexpr double kMostChange = 0.1;
constexpr double kLongestStep = 3;

// nanoGPT of 21 million parameters lost 3 and 9 % in 400 steps without. By gather a rank sends half a byte a
// value to each other one; an all-reduce of float32 sends less than 8 in all.
constexpr std::uint64_t kFirstSteps = 25;
constexpr std::string_view kFirstCodec = "fp4";
constexpr int kMostByGather = 15;

// Rows relative to their second moments, for codecs whose threshold follows the values (twobit's does not).
constexpr double kLeastRowScale = 1e-3;

constexpr double kSparseS = 1.75;  // from which on 3lc was seen to lose much under any optimizer

constexpr std::string_view kLatePage = "docs/results/training/late-codecs.md";
constexpr std::string_view kInRounds = "exchange after several local steps (LocalSteps)";

std::string shortest(double value, int precision) {
  std::array<char, 32> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, precision);
  return error == std::errc() ? std::string(text.data(), end) : std::string();
}

bool is_adam(OptimizerFamily family) noexcept {
  return family == OptimizerFamily::kAdam || family == OptimizerFamily::kAdamW;
}

// Whose second moment is an element's, or nearly.
bool divides_by_squares(const OptimizerTraits& optimizer) noexcept {
  switch (optimizer.family) {
    case OptimizerFamily::kAdaGrad:
    case OptimizerFamily::kRmsProp:
    case OptimizerFamily::kAdafactor: return true;
    default: return optimizer.name.find("Adam") != std::string::npos;
  }
}

std::string quoted(const SpecRule& rule) {
  return "'" + rule.codec + "'";
}

// The advice that comes first, where it can be followed.
std::string first_advice(const OptimizerTraits& optimizer, OptimizerPlace place, std::string_view otherwise) {
  const bool has_rule = optimizer.family == OptimizerFamily::kSgd || is_adam(optimizer.family);
  if (has_rule && place == OptimizerPlace::kRegister) {
    return "Write register(model, spec, optimizer=optimizer); or " + std::string(otherwise);
  }
  if (has_rule && place == OptimizerPlace::kServer) {
    return "Let servers step by its rule (momentum=\"rate\"; in C++ ServerOptions::rules_of); or " +
           std::string(otherwise);
  }
  if (has_rule && place == OptimizerPlace::kLocalSteps) {
    return "Under DistributedDataParallel or FSDP2, give register optimizer=; or " + std::string(otherwise);
  }
  std::string text(otherwise);
  text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text;
}

std::string of_momentum(const SpecRule& rule, const OptimizerTraits& optimizer, OptimizerPlace place) {
  const std::string momentum = shortest(optimizer.momentum, 6);
  const double times = MomentumRate{optimizer.momentum}.constant();
  return quoted(rule) + " sends most of a gradient in later steps, and the momentum=" + momentum + " of " +
         optimizer.name + " multiplies what arrives: such runs diverged (" + std::string(kLatePage) + "). " +
         first_advice(optimizer, place, "give ") + optimizer.name + " momentum=0 and " + shortest(times, 2) +
         " times the learning rate; or momentum=0, and the momentum before the codec, as in 'dgc' or '... "
         "with momentum=" +
         momentum + "'; or " + std::string(kInRounds);
}

std::string of_first_moment(const SpecRule& rule, const OptimizerTraits& optimizer, OptimizerPlace place) {
  const std::string measured = is_adam(optimizer.family)
                                   ? "LeNet-5 lost 5 to 11 points"
                                   : "not measured; under AdamW LeNet-5 lost 5 to 11 points";
  return quoted(rule) +
         " sends most of a gradient in later steps, and the beta1=" + shortest(optimizer.beta1, 6) + " of " +
         optimizer.name + " delays it further: " + measured + " (" + std::string(kLatePage) + "). " +
         first_advice(optimizer, place, "give ") + optimizer.name + " beta1=0; or " + std::string(kInRounds);
}

std::string of_momentum_twice(const SpecRule& rule, const OptimizerTraits& optimizer) {
  return quoted(rule) + " has momentum before the codec, and " + optimizer.name +
         " has momentum=" + shortest(optimizer.momentum, 6) + " again: give " + optimizer.name +
         " momentum=0";
}

std::string instead_of_spikes(const SpecRule& rule, const OptimizerTraits& optimizer, OptimizerPlace place) {
  const bool has_rules = place == OptimizerPlace::kRegister;
  if (!is_adam(optimizer.family)) {
    return has_rules ? "Take int8, or torch.optim.AdamW with register(model, spec, optimizer=optimizer)"
                     : "Take int8";
  }
  if (has_rules && rule.momentum > 0) {
    return "Leave its momentum out and write register(model, spec, optimizer=optimizer)";
  }
  return first_advice(optimizer, place,
                      has_rules ? "take sbc:p=1% or topk:k=1%, with optimizer="
                                : "take topk:k=1%, with beta1=0 and 0.75 times the learning rate");
}

std::string of_spikes(const SpecRule& rule, const OptimizerTraits& optimizer, OptimizerPlace place) {
  if (optimizer.family == OptimizerFamily::kLion) {
    return quoted(rule) +
           " sends few values, as large as the largest, and each turns the sign that Lion steps by for many "
           "steps: not measured. Take int8, or " +
           std::string(kInRounds);
  }
  const std::string measured = is_adam(optimizer.family) ? "LeNet-5 lost 8 points under AdamW"
                                                         : "not measured; under AdamW LeNet-5 lost 8 points";
  return quoted(rule) + " sends few values, as large as the largest, and " + optimizer.name +
         "'s second moment takes them for large gradients: " + measured + " (" + std::string(kLatePage) +
         "). " + instead_of_spikes(rule, optimizer, place) + "; or " + std::string(kInRounds);
}

// Of what changes Muon as much as the gradient does: it makes all directions equally long.
std::string of_muon(const SpecRule& rule) {
  return quoted(rule) +
         " sends few values of a gradient or late ones, and Muon steps as far in the directions of what is "
         "missing: a transformer's loss ended 20 to 25 % higher (" +
         std::string(kLatePage) +
         "). Take fp4, which cost 3 %, or exchange what Muon has stepped in "
         "rounds, which cost as much: LocalSteps with outer=\"nesterov\"";
}

std::string of_sparse_spikes(const SpecRule& rule, bool is_factored) {
  const std::string lost = is_factored ? "10 points on LeNet-5 under AdamW (" + std::string(kLatePage) + ")"
                                       : "14 points on LeNet-5 under SGD, and can diverge with momentum "
                                         "(docs/results/training.md)";
  return quoted(rule) + " lost " + lost + ": take 3lc, whose s is 1; or " + std::string(kInRounds);
}

std::string no_rule(const SpecRule& rule, const OptimizerTraits& optimizer) {
  return quoted(rule) +
         " sends most of a gradient later, which an optimizer's momentum multiplies or delays (int8 sends "
         "nearly everything at once and goes with any optimizer, 3lc with SGD, Adam and AdamW; LocalSteps "
         "exchanges after several steps of it: docs/guides/pytorch.md, \"Momentum\"); what can take its "
         "place is known for torch.optim.SGD, Adam and AdamW, not for " +
         optimizer.name;
}

std::string of_outer_momentum(const SpecRule& rule, const OptimizerTraits& optimizer) {
  return quoted(rule) +
         " sends most of a change in later rounds, and the momentum=" + shortest(optimizer.momentum, 6) +
         " of the outer " + optimizer.name +
         " multiplies what arrives: sbc and sparseloco ended 2 to 4 % higher with it than without an outer "
         "optimizer (docs/results/training/local-steps.md). Give outer=\"rising\", or none";
}

bool is_sparse(const SpecRule& rule) {
  double s = 0;
  const std::string_view text = rule.codec_parameters.value("s");
  std::from_chars(text.data(), text.data() + text.size(), s);
  return s >= kSparseS;
}

OptimizerRule factored(double beta1) {
  OptimizerRule found;
  found.rule = StepRule::kFactoredSecondMoment;
  found.first_steps = kFirstSteps;
  found.beta1 = beta1;
  found.pull = kFactoredPull;
  found.most_rms = kMostRms;
  found.most_change = kMostChange;
  found.longest_step = kLongestStep;
  return found;
}

OptimizerRule rule_of_late(const SpecRule& rule, const OptimizerTraits& optimizer, OptimizerPlace place) {
  OptimizerRule found;
  if (optimizer.family == OptimizerFamily::kSgd) {
    found.rule = StepRule::kMomentumAsRate;
  } else if (is_adam(optimizer.family)) {
    const CodecRow* row = row_of_codec(rule.info->name);
    if (row != nullptr && row->factored) {
      found = factored(kLateFactoredBeta1);
    } else {
      found.rule = StepRule::kWithoutFirstMoment;
      found.first_steps = kFirstSteps;
      found.rate_share = kRateShareWithoutFirstMoment;
    }
    if (row != nullptr && row->lost_under_adam > 0) {
      const int lost = row->lost_under_adam;
      found.remark = quoted(rule) + " lost " + std::to_string(lost) + (lost == 1 ? " point" : " points") +
                     " under AdamW on LeNet-5, where topk:k=1% and sbc:p=1% lost none (" +
                     std::string(kLatePage) + "): take one of these";
    }
  } else {
    found.refusal = no_rule(rule, optimizer);
  }
  if (optimizer.family == OptimizerFamily::kMuon) {
    if (place != OptimizerPlace::kLocalSteps) found.warning = of_muon(rule);
  } else if (optimizer.momentum > 0) {
    found.warning = of_momentum(rule, optimizer, place);
  } else if (optimizer.beta1 > 0) {
    found.warning = of_first_moment(rule, optimizer, place);
  }
  return found;
}

OptimizerRule rule_of_spikes(const SpecRule& rule, const OptimizerTraits& optimizer, OptimizerPlace place) {
  OptimizerRule found;
  const bool is_factored = is_adam(optimizer.family) && rule.momentum == 0;
  if (is_factored) {
    found = factored(kFactoredBeta1);
    found.least_scale = kLeastRowScale;
  }
  if (optimizer.family == OptimizerFamily::kMuon) {
    found.warning = of_muon(rule);
  } else if (divides_by_squares(optimizer) || optimizer.family == OptimizerFamily::kLion) {
    found.warning = of_spikes(rule, optimizer, place);
  }
  if (is_sparse(rule)) {
    std::string& text = is_factored ? found.remark : found.warning;
    if (text.empty()) text = of_sparse_spikes(rule, is_factored);
  }
  return found;
}

}  // namespace

const CodecRow* row_of_codec(std::string_view codec) noexcept {
  const auto* row = std::ranges::find(kRows, codec, &CodecRow::codec);
  return row == kRows.end() ? nullptr : row;
}

OptimizerTraits OptimizerTraits::named(std::string_view name, double momentum, double beta1) {
  using enum OptimizerFamily;
  constexpr std::pair<std::string_view, OptimizerFamily> kNames[] = {
      {"SGD", kSgd},     {"Adagrad", kAdaGrad}, {"RMSprop", kRmsProp},     {"Adam", kAdam},
      {"AdamW", kAdamW}, {"NAdam", kNAdam},     {"Adafactor", kAdafactor}, {"Lion", kLion}};
  OptimizerTraits traits{kOther, std::string(name), momentum, beta1};
  if (name.find("Muon") != std::string_view::npos) traits.family = kMuon;  // of which there are many
  if (name.find("ScheduleFree") != std::string_view::npos) traits.family = kScheduleFree;
  for (const auto& [known, family] : kNames) {
    if (name == known) traits.family = family;
  }
  return traits;
}

OptimizerTraits OptimizerTraits::of(const OptimizerSettings& settings) {
  switch (settings.kind) {
    case OptimizerKind::kSgd: return named("SGD", 0, 0);
    case OptimizerKind::kMomentum:
    case OptimizerKind::kNesterov: return named("SGD", settings.momentum, 0);
    case OptimizerKind::kAdaGrad: return named("Adagrad", 0, 0);
    case OptimizerKind::kRmsProp: return named("RMSprop", 0, 0);
    case OptimizerKind::kAdam: return named("Adam", 0, settings.beta1);
    case OptimizerKind::kAdamW: return named("AdamW", 0, settings.beta1);
  }
  return {};
}

OptimizerRule optimizer_rule(const SpecRule& rule, const OptimizerTraits& optimizer, OptimizerPlace place) {
  OptimizerRule found;
  if (place == OptimizerPlace::kOuter) {
    if (rule.is_late && optimizer.momentum > 0) found.warning = of_outer_momentum(rule, optimizer);
    return found;
  }
  const CodecRow* row = row_of_codec(rule.info->name);
  if (rule.is_late) {
    found = rule_of_late(rule, optimizer, place);
  } else if (row != nullptr && row->arrival == Arrival::kSpikes && place != OptimizerPlace::kLocalSteps) {
    found = rule_of_spikes(rule, optimizer, place);
  }
  if (rule.momentum > 0 && optimizer.momentum > 0) found.warning = of_momentum_twice(rule, optimizer);
  return found;
}

OptimizerSettings settings_by(const OptimizerRule& rule, OptimizerSettings settings, std::uint64_t step) {
  switch (rule.rule) {
    case StepRule::kAsItIs: break;
    case StepRule::kMomentumAsRate:
      if (settings.momentum <= 0 || settings.momentum >= 1) break;
      settings.learning_rate *= MomentumRate{settings.momentum, settings.dampening}.times(step);
      settings.momentum = settings.dampening = 0;
      break;
    case StepRule::kWithoutFirstMoment:
      if (settings.beta1 > 0) settings.learning_rate *= rule.rate_share;
      settings.beta1 = 0;
      break;
    case StepRule::kFactoredSecondMoment: settings.beta1 = std::min(settings.beta1, rule.beta1); break;
  }
  return settings;
}

std::vector<std::string> optimizer_warnings(const Spec& spec, const OptimizerTraits& optimizer,
                                            OptimizerPlace place, bool rules_apply) {
  std::vector<std::string> texts;
  for (const SpecRule& rule : spec.rules) {
    OptimizerRule found = optimizer_rule(rule, optimizer, place);
    if (rules_apply && found.rule != StepRule::kAsItIs) continue;
    if (!found.warning.empty() && std::ranges::find(texts, found.warning) == texts.end()) {
      texts.push_back(std::move(found.warning));
    }
  }
  return texts;
}

Result<Spec> with_means_for(const Spec& spec, const OptimizerTraits& optimizer) {
  double pull = 0;
  for (const SpecRule& rule : spec.rules) {
    pull = std::max(pull, optimizer_rule(rule, optimizer, OptimizerPlace::kRegister).pull);
  }
  return pull > 0 ? spec.with_pull(static_cast<float>(pull)) : spec;
}

Result<Spec> fitted_to(const Spec& spec, const OptimizerTraits& optimizer, int world_size) {
  ASSIGN_OR_RETURN(const auto finer, with_means_for(spec, optimizer));
  if (spec.pattern_name == "gather" && world_size > kMostByGather) return finer;
  return finer.with_first_steps(kFirstCodec, [&](const SpecRule& rule) {
    return optimizer_rule(rule, optimizer, OptimizerPlace::kRegister).first_steps;
  });
}

double MomentumRate::times(std::uint64_t step) const noexcept {
  const double risen = std::min(1.0, static_cast<double>(step) / rise_steps());
  const double share = kFirstRateShare + (kLastRateShare - kFirstRateShare) * risen;
  const double velocity = (1 - std::pow(momentum, static_cast<double>(step) + 1)) / (1 - momentum);
  return (1 - dampening) * std::max(1.0, share * velocity);
}

double MomentumRate::rise_steps() const noexcept {
  return kRise / (1 - momentum);
}

double MomentumRate::constant() const noexcept {
  return momentum < 1 ? std::max(1.0, kFirstRateShare / (1 - momentum)) : 1.0;
}

}  // namespace deltawire
