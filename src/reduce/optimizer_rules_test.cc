// Every cell of the table: each codec of the registry with each optimizer.
#include "deltawire/optimizer_rules.h"

#include <map>

#include <gtest/gtest.h>

#include "reduce/optimizer_table.h"

namespace deltawire::optimizer_rules_test {
namespace {

std::vector<OptimizerTraits> optimizers() {
  const auto named = &OptimizerTraits::named;
  return {named("SGD", 0, 0),
          named("SGD", 0.9, 0),
          named("Adagrad", 0, 0),
          named("RMSprop", 0, 0),
          named("Adam", 0, 0.9),
          named("AdamW", 0, 0.9),
          named("NAdam", 0, 0.9),
          named("Adafactor", 0, 0),
          named("Lion", 0, 0.9),
          named("muon.MuonWithAuxAdam", 0.95, 0.9),
          named("AdamWScheduleFree", 0, 0.9),
          named("Adamax", 0, 0.9),
          named("Rprop", 0, 0),
          named("apex.AdamW", 0, 0.9)};
}

OptimizerRule rule_of(std::string_view spec, const OptimizerTraits& optimizer,
                      OptimizerPlace place = OptimizerPlace::kRegister) {
  const auto parsed = Spec::parse(spec);
  EXPECT_TRUE(parsed) << spec << ": " << parsed.error().message;
  return parsed ? optimizer_rule(parsed->rules.back(), optimizer, place) : OptimizerRule{};
}

// What is done ("." nothing, "R" momentum as rate, "0" no first moment, "E" factored second moment) and what
// is said ("!" warned where it isn't done, "*" remarked though it is, "x" refused).
std::string cell(std::string_view spec, const OptimizerTraits& optimizer) {
  const OptimizerRule found = rule_of(spec, optimizer);
  std::string text(1, ".R0E"[static_cast<int>(found.rule)]);
  if (!found.warning.empty()) text += "!";
  if (!found.remark.empty()) text += "*";
  if (!found.refusal.empty()) text += "x";
  for (const std::string& said : {found.warning, found.remark, found.refusal}) {
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
  return text;
}

std::string line(std::string_view spec) {
  std::string cells;
  for (const OptimizerTraits& optimizer : optimizers()) {
    cells += (cells.empty() ? "" : " ") + cell(spec, optimizer);
  }
  return cells;
}

// SGD, the same with momentum, Adagrad, RMSprop, Adam, AdamW, NAdam, Adafactor, Lion, Muon, schedule-free,
// others with beta1 and without, another class of AdamW's name.
constexpr std::string_view kNothing = ". . . . . . . . . . . . . .";
constexpr std::string_view kLate = "R R! .x .x 0! 0! .!x .x .!x .!x .!x .!x .x .!x";
constexpr std::string_view kSpikes = ". . .! .! E! E! .! .! .! .! .! .! . .!";

TEST(OptimizerRules, OfEveryCodec) {
  const std::map<std::string_view, std::string_view> others = {
      {"3lc", kSpikes},    {"sbc", kLate},
      {"randomk", kLate},  {"onebit", kLate},
      {"signsgd", kLate},  {"topk", kLate},
      {"dropping", kLate}, {"twobit", "R R! .x .x E!* E!* .!x .x .!x .!x .!x .!x .x .!x"}};
  for (const CodecInfo* info : registered_codecs()) {
    const CodecRow* row = row_of_codec(info->name);
    ASSERT_NE(row, nullptr) << info->name << " has no row in src/reduce/optimizer_rules.cc";
    const auto other = others.find(info->name);
    EXPECT_EQ(line(info->name), other == others.end() ? kNothing : other->second) << info->name;
    EXPECT_EQ(row->arrival != Arrival::kAtOnce, other != others.end()) << info->name;
    for (const std::string_view example : info->examples) {
      const auto codec = make_codec(example);
      ASSERT_TRUE(codec) << example;
      if ((*codec)->info().late) {
        EXPECT_EQ(row->arrival, Arrival::kLate) << example;
      }
    }
  }
}

TEST(OptimizerRules, OfParameters) {
  const std::map<std::string_view, std::string_view> lines = {
      {"signsgd:feedback=off", kNothing},
      {"randomk:unbiased=on", kNothing},
      {"topk:k=50%", kNothing},
      {"3lc:s=0.5", kSpikes},
      {"3lc:s=1.75", ".! .! .! .! E!* E!* .! .! .! .! .! .! .! .!"},
      {"topk with momentum=0.9", ". .! . . . . . . . .! . . . ."},
      {"3lc with momentum=0.9", ". .! .! .! .! .! .! .! .! .! .! .! . .!"}};
  for (const auto& [spec, expected] : lines) EXPECT_EQ(line(spec), expected) << spec;
}

TEST(OptimizerRules, HaveConstants) {
  const OptimizerTraits adamw = OptimizerTraits::named("AdamW", 0, 0.9);
  const OptimizerRule rows = rule_of("3lc", adamw);
  EXPECT_EQ(rows.beta1, 0.5);
  EXPECT_EQ(rows.pull, 0.5);
  EXPECT_EQ(rows.rate_share, 1);
  EXPECT_EQ(rows.most_rms, 1);
  EXPECT_EQ(rows.most_change, 0.1);
  EXPECT_EQ(rows.longest_step, 3);
  EXPECT_EQ(rows.least_scale, 1e-3);
  const OptimizerRule late = rule_of("topk", adamw);
  EXPECT_EQ(late.beta1, 0);
  EXPECT_EQ(late.pull, 0);
  EXPECT_EQ(late.rate_share, 0.75);
  const OptimizerRule both = rule_of("twobit", adamw);
  EXPECT_EQ(both.beta1, 0);
  EXPECT_EQ(both.rate_share, 1);
  EXPECT_EQ(both.most_rms, 1);
  EXPECT_EQ(both.least_scale, 0) << "its threshold has the gradient's unit";
}

TEST(OptimizerRules, SayWhatIsLostAndWhatToWrite) {
  const OptimizerTraits adamw = OptimizerTraits::named("AdamW", 0, 0.9);
  const OptimizerTraits sgd = OptimizerTraits::named("SGD", 0.9, 0);
  EXPECT_EQ(
      rule_of("3lc", adamw).warning,
      "'3lc:s=1,mode=auto,runs=on' sends few values, as large as the largest, and AdamW's second moment "
      "takes them for large gradients: LeNet-5 lost 8 points under AdamW "
      "(docs/results/training/late-codecs.md). Write register(model, spec, optimizer=optimizer); or take "
      "sbc:p=1% or topk:k=1%, with optimizer=; or exchange after several local steps (LocalSteps)");
  EXPECT_NE(rule_of("3lc with momentum=0.9", adamw)
                .warning.find("Leave its momentum out and write register(model, spec, optimizer=optimizer);"),
            std::string::npos);
  EXPECT_NE(rule_of("3lc", adamw, OptimizerPlace::kServer)
                .warning.find("; or take topk:k=1%, with beta1=0 and 0.75 times"),
            std::string::npos);
  const std::string rmsprop = rule_of("3lc", OptimizerTraits::named("RMSprop", 0, 0)).warning;
  EXPECT_NE(rmsprop.find("not measured; under AdamW LeNet-5 lost 8 points"), std::string::npos) << rmsprop;
  EXPECT_NE(rmsprop.find("Take int8, or torch.optim.AdamW with register("), std::string::npos) << rmsprop;
  EXPECT_EQ(
      rule_of("sbc", sgd, OptimizerPlace::kServer).warning,
      "'sbc:p=0.01' sends most of a gradient in later steps, and the momentum=0.9 of SGD "
      "multiplies what arrives: such runs diverged (docs/results/training/late-codecs.md). Let servers step "
      "by "
      "its rule (momentum=\"rate\"; in C++ ServerOptions::rules_of); or give SGD "
      "momentum=0 and 5 times the learning rate; or momentum=0, and the momentum before the codec, as in "
      "'dgc' or '... with momentum=0.9'; or exchange after several local steps (LocalSteps)");
  EXPECT_EQ(
      rule_of("3lc:s=1.75", sgd).warning,
      "'3lc:s=1.75,mode=auto,runs=on' lost 14 points on LeNet-5 under SGD, and can diverge with momentum "
      "(docs/results/training.md): take 3lc, whose s is 1; or exchange after several local steps "
      "(LocalSteps)");
  const std::string sparse = rule_of("3lc:s=1.75", adamw).remark;
  EXPECT_NE(
      sparse.find("lost 10 points on LeNet-5 under AdamW (docs/results/training/late-codecs.md): take 3lc"),
      std::string::npos)
      << sparse;
  EXPECT_EQ(rule_of("twobit", adamw).remark,
            "'twobit:t=0.5' lost 1 point under AdamW on LeNet-5, where topk:k=1% and sbc:p=1% lost none "
            "(docs/results/training/late-codecs.md): take one of these");
}

TEST(OptimizerRules, RulesThatApplyNeedNoWarning) {
  const Spec spec = *Spec::parse("direct(a*: 3lc, b*: topk, rest 3lc:s=1.5)");
  const auto warned = [&](std::string_view name, bool apply) {
    const OptimizerTraits optimizer = OptimizerTraits::named(name, 0, 0.9);
    return optimizer_warnings(spec, optimizer, OptimizerPlace::kRegister, apply).size();
  };
  EXPECT_EQ(warned("AdamW", false), 3);
  EXPECT_EQ(warned("AdamW", true), 0);
  EXPECT_EQ(warned("Lion", true), 3);
}

TEST(OptimizerRules, MeansAreAsFineAsTheRulesNeed) {
  const auto with = [](std::string_view spec, std::string_view optimizer) {
    return with_means_for(*Spec::parse(spec), OptimizerTraits::named(optimizer, 0, 0.9))->codecs;
  };
  EXPECT_EQ(with("3lc", "AdamW"), "3lc:s=1,mode=auto,runs=on,pull=0.5");
  EXPECT_EQ(with("3lc", "SGD"), "3lc:s=1,mode=auto,runs=on");
  EXPECT_EQ(with("topk", "AdamW"), Spec::parse("topk")->codecs);
}

TEST(OptimizerRules, TheFirstStepsAreFinerUnlessTheSpecNamesSteps) {
  const auto fitted = [](std::string_view spec, std::string_view optimizer, int ranks = 15) {
    return fitted_to(*Spec::parse(spec), OptimizerTraits::named(optimizer, 0, 0.9), ranks)->codecs;
  };
  const auto same = [](std::string_view spec) { return Spec::parse(spec)->codecs; };
  EXPECT_EQ(fitted("3lc", "AdamW"), same("step<25: fp4, rest 3lc:pull=0.5"));
  EXPECT_EQ(fitted("direct(3lc)", "AdamW", 1000), fitted("3lc", "AdamW"));
  EXPECT_EQ(fitted("gather(3lc)", "Adam"), same("gather(step<25: fp4, rest 3lc)"));
  EXPECT_EQ(fitted("gather(3lc)", "Adam", 16), same("gather(3lc)"));
  EXPECT_EQ(fitted("direct(*.w dims>=2: 3lc with clip=1, a: topk, rest 3lc:s=1.5)", "AdamW"),
            same("direct(*.w dims>=2 step<25: fp4 with clip=1, *.w dims>=2: 3lc:pull=0.5 with clip=1, "
                 "a step<25: fp4, a: topk, "
                 "step<25: fp4, rest 3lc:s=1.5,pull=0.5)"));
  EXPECT_EQ(fitted("step<7: bf16, rest 3lc", "AdamW"), same("step<7: bf16, rest 3lc:pull=0.5"));
  for (const char* other : {"3lc", "topk", "fp32"}) EXPECT_EQ(fitted(other, "SGD"), same(other));
  for (const char* spec : {"twobit", "ring(sbc)", "hierarchical:group=2(3lc)", "topk with decay=0.95"})
    EXPECT_EQ(fitted(spec, "AdamW").rfind("step<25: fp4", 0), 0) << spec;
  EXPECT_EQ(fitted("sbc with momentum=0.9", "AdamW"), same("sbc with momentum=0.9"));
}

TEST(OptimizerRules, OfAnOuterOptimizer) {
  const OptimizerTraits nesterov = OptimizerTraits::named("SGD", 0.9, 0);
  const OptimizerRule late = rule_of("topk", nesterov, OptimizerPlace::kOuter);
  EXPECT_EQ(late.rule, StepRule::kAsItIs);
  EXPECT_EQ(late.warning.rfind(
                "'topk:k=0.01,values=fp32,positions=golomb' sends most of a change in later rounds, and the "
                "momentum=0.9 of the outer SGD multiplies what arrives",
                0),
            0)
      << late.warning;
  EXPECT_EQ(rule_of("topk", OptimizerTraits::named("SGD", 0, 0), OptimizerPlace::kOuter).warning, "");
  EXPECT_EQ(rule_of("3lc:s=1.75", nesterov, OptimizerPlace::kOuter).warning, "");
  EXPECT_EQ(rule_of("3lc with momentum=0.9", nesterov, OptimizerPlace::kOuter).warning, "");
}

// A rank's own gradients are exact, and no spikes; what is late comes late there, too.
TEST(OptimizerRules, OfLocalSteps) {
  const OptimizerTraits adamw = OptimizerTraits::named("AdamW", 0, 0.9);
  EXPECT_EQ(rule_of("3lc", adamw, OptimizerPlace::kLocalSteps).rule, StepRule::kAsItIs);
  EXPECT_EQ(rule_of("3lc:s=1.75", adamw, OptimizerPlace::kLocalSteps).warning, "");
  EXPECT_NE(
      rule_of("topk", adamw, OptimizerPlace::kLocalSteps)
          .warning.find("Under DistributedDataParallel or FSDP2, give register optimizer=; or give AdamW"),
      std::string::npos);
}

TEST(OptimizerRules, OfAllRulesOfASpec) {
  const auto spec = *Spec::parse("direct(conv*: topk:k=1%, fc*: topk:k=1%, dims<2: bf16, rest 3lc:s=1.75)");
  EXPECT_EQ(
      optimizer_warnings(spec, OptimizerTraits::named("SGD", 0.9, 0), OptimizerPlace::kOwnProgram).size(), 2);
  EXPECT_EQ(optimizer_warnings(spec, OptimizerTraits::named("SGD", 0, 0), OptimizerPlace::kOwnProgram).size(),
            1);
}

TEST(OptimizerRules, KnowTheCoresOwnOptimizers) {
  using enum OptimizerFamily;
  const auto of = [](OptimizerKind kind) {
    return OptimizerTraits::of({.kind = kind, .momentum = 0.8, .beta1 = 0.7});
  };
  EXPECT_EQ(of(OptimizerKind::kSgd).family, kSgd);
  EXPECT_EQ(of(OptimizerKind::kSgd).momentum, 0) << "a setting of other kinds";
  EXPECT_EQ(of(OptimizerKind::kMomentum).momentum, 0.8);
  EXPECT_EQ(of(OptimizerKind::kNesterov).momentum, 0.8);
  EXPECT_EQ(of(OptimizerKind::kAdaGrad).family, kAdaGrad);
  EXPECT_EQ(of(OptimizerKind::kRmsProp).family, kRmsProp);
  EXPECT_EQ(of(OptimizerKind::kAdam).beta1, 0.7);
  EXPECT_EQ(of(OptimizerKind::kAdamW).name, "AdamW");
}

// As it is for an optimizer that has nothing to change.
TEST(OptimizerRules, ChangeSettings) {
  const auto changed = [](StepRule rule, OptimizerSettings settings) {
    OptimizerRule of;
    of.rule = rule;
    of.beta1 = 0.5;
    of.rate_share = 0.75;
    return settings_by(of, settings, 200);
  };
  const OptimizerSettings momentum{
      .kind = OptimizerKind::kMomentum, .learning_rate = 1, .momentum = 0.9, .dampening = 0.5};
  const OptimizerSettings adam{.kind = OptimizerKind::kAdam, .learning_rate = 1, .beta1 = 0.9, .beta2 = 0.99};
  const OptimizerSettings as_rate = changed(StepRule::kMomentumAsRate, momentum);
  EXPECT_NEAR(as_rate.learning_rate, 0.5 * 7.5, 1e-6);
  EXPECT_EQ(as_rate.momentum + as_rate.dampening, 0);
  OptimizerSettings without = adam;
  without.learning_rate = 0.75;
  without.beta1 = 0;
  EXPECT_EQ(changed(StepRule::kWithoutFirstMoment, adam), without);
  EXPECT_EQ(changed(StepRule::kFactoredSecondMoment, adam).beta1, 0.5);
  for (const StepRule rule : {StepRule::kMomentumAsRate, StepRule::kWithoutFirstMoment, StepRule::kAsItIs}) {
    const OptimizerSettings plain{.kind = OptimizerKind::kAdam, .learning_rate = 1, .beta1 = 0};
    EXPECT_EQ(changed(rule, plain), plain);
  }
  OptimizerSettings low = adam;
  low.beta1 = 0.2;
  EXPECT_EQ(changed(StepRule::kFactoredSecondMoment, low), low);
}

TEST(OptimizerRules, MomentumAsARateRisesAndThenStays) {
  const MomentumRate rate{0.9, 0};
  EXPECT_DOUBLE_EQ(rate.times(0), 1);
  EXPECT_NEAR(rate.times(3), 1.732, 1e-3);
  EXPECT_NEAR(rate.times(100), 6.25, 1e-3);
  EXPECT_NEAR(rate.times(200), 7.5, 1e-6);
  EXPECT_NEAR(rate.times(kNoStep), 7.5, 1e-9);
  EXPECT_NEAR(rate.rise_steps(), 200, 1e-9);
  EXPECT_NEAR(rate.constant(), 5, 1e-9);
  EXPECT_EQ((MomentumRate{0.2, 0}.times(99)), 1) << "never a lower one";
  EXPECT_NEAR((MomentumRate{0.99, 0.5}.times(kNoStep)), 37.5, 1e-9);
  EXPECT_EQ((MomentumRate{1, 0}.constant()), 1);
}

}  // namespace
}  // namespace deltawire::optimizer_rules_test
