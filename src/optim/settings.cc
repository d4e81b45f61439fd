// The table of optimizers: names, parameters, ranges, defaults. Specs are parsed and printed from it.
#include <algorithm>
#include <array>
#include <limits>

#include "base/errors.h"
#include "base/spec_text.h"
#include "deltawire/optimizer.h"

namespace deltawire {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Range {
  double low;
  double high;  // excluded if `open`
  bool open;
  std::string_view words;
};

constexpr Range kNotNegative{0, kInfinity, true, "a number >= 0"};
constexpr Range kBelowOne{0, 1, true, "0 <= value < 1"};
constexpr Range kShare{0, 1, false, "0 <= value <= 1"};
constexpr Range kAnyNumber{-std::numeric_limits<double>::max(), kInfinity, true, "a finite number"};

struct Parameter {
  std::string_view key;
  double OptimizerSettings::* member;
  double default_value;
  const Range& range;
};

using S = OptimizerSettings;
constexpr Parameter kDecay{"weight_decay", &S::weight_decay, 0, kNotNegative};
constexpr Parameter kMomentum{"momentum", &S::momentum, 0.9, kNotNegative};
constexpr Parameter kRate{"lr", &S::learning_rate, 1e-3, kNotNegative};
constexpr Parameter kGreaterRate{"lr", &S::learning_rate, 1e-2, kNotNegative};
constexpr Parameter kEps{"eps", &S::eps, 1e-8, kNotNegative};
constexpr Parameter kBeta1{"beta1", &S::beta1, 0.9, kBelowOne};
constexpr Parameter kBeta2{"beta2", &S::beta2, 0.999, kBelowOne};

constexpr std::array kSgdParameters{kRate, kDecay};
constexpr std::array kMomentumParameters{kRate, kMomentum,
                                         Parameter{"dampening", &S::dampening, 0, kAnyNumber}, kDecay};
constexpr std::array kNesterovParameters{kRate, kMomentum, kDecay};
constexpr std::array kAdaGradParameters{
    kGreaterRate, Parameter{"lr_decay", &S::lr_decay, 0, kNotNegative},
    Parameter{"eps", &S::eps, 1e-10, kNotNegative},
    Parameter{"initial_accumulator", &S::initial_accumulator, 0, kNotNegative}, kDecay};
constexpr std::array kRmsPropParameters{kGreaterRate, Parameter{"alpha", &S::alpha, 0.99, kShare}, kEps,
                                        kDecay};
constexpr std::array kAdamParameters{kRate, kBeta1, kBeta2, kEps, kDecay};
constexpr std::array kAdamWParameters{kRate, kBeta1, kBeta2, kEps,
                                      Parameter{"weight_decay", &S::weight_decay, 0.01, kNotNegative}};

struct Kind {
  OptimizerKind kind;
  std::string_view name;
  std::span<const Parameter> parameters;
};

constexpr std::array kKinds{
    Kind{OptimizerKind::kSgd, "sgd", kSgdParameters},
    Kind{OptimizerKind::kMomentum, "momentum", kMomentumParameters},
    Kind{OptimizerKind::kNesterov, "nesterov", kNesterovParameters},
    Kind{OptimizerKind::kAdaGrad, "adagrad", kAdaGradParameters},
    Kind{OptimizerKind::kRmsProp, "rmsprop", kRmsPropParameters},
    Kind{OptimizerKind::kAdam, "adam", kAdamParameters},
    Kind{OptimizerKind::kAdamW, "adamw", kAdamWParameters},
};

const Kind* find_kind(OptimizerKind kind) {
  const auto* at = std::ranges::find(kKinds, kind, &Kind::kind);
  return at == kKinds.end() ? nullptr : at;
}

// Written so that NaN, which compares false with everything, is out of every range.
bool in_range(double value, const Range& range) {
  return value >= range.low && (range.open ? value < range.high : value <= range.high);
}

Status out_of_range(const Kind& kind, const Parameter& parameter, std::string_view given) {
  return invalid(std::string(kind.name) + ": " + std::string(parameter.key) + "=" + std::string(given) +
                 " is out of range: give " + std::string(parameter.range.words));
}

Status read_parameter(const Kind& kind, const SpecParameter& given, OptimizerSettings& settings) {
  const auto parameter = std::ranges::find(kind.parameters, given.key, &Parameter::key);
  if (parameter == kind.parameters.end()) {
    return invalid(std::string(kind.name) + " has no parameter \"" + std::string(given.key) + "\": it has " +
                   list_of(kind.parameters, ", ", &Parameter::key));
  }
  const auto value = parse_number<double>(given.value);
  if (!value || !in_range(*value, parameter->range)) return out_of_range(kind, *parameter, given.value);
  settings.*(parameter->member) = *value;
  return {};
}

}  // namespace

bool has_first_moment(OptimizerKind kind) noexcept {
  return kind == OptimizerKind::kMomentum || kind == OptimizerKind::kNesterov ||
         kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW;
}

bool has_second_moment(OptimizerKind kind) noexcept {
  return kind == OptimizerKind::kAdaGrad || kind == OptimizerKind::kRmsProp || kind == OptimizerKind::kAdam ||
         kind == OptimizerKind::kAdamW;
}

Result<OptimizerSettings> parse_optimizer(std::string_view spec) {
  ASSIGN_OR_RETURN(const ParsedSpec parsed, parse_spec(spec, "optimizer"));
  const auto* kind = std::ranges::find(kKinds, parsed.name, &Kind::name);
  if (kind == kKinds.end()) {
    return invalid("no optimizer \"" + std::string(parsed.name) + "\": use one of " +
                   list_of(kKinds, ", ", &Kind::name));
  }
  OptimizerSettings settings;
  settings.kind = kind->kind;
  for (const Parameter& parameter : kind->parameters) settings.*(parameter.member) = parameter.default_value;
  for (const SpecParameter& given : parsed.parameters) {
    RETURN_IF_ERROR(read_parameter(*kind, given, settings));
  }
  return settings;
}

std::string optimizer_spec(const OptimizerSettings& settings) {
  const Kind* kind = find_kind(settings.kind);
  if (kind == nullptr) return "unknown";
  return std::string(kind->name) + ":" + list_of(kind->parameters, ",", [&](const Parameter& p) {
           return std::string(p.key) + "=" + shortest_text(settings.*(p.member));
         });
}

Status check_settings(const OptimizerSettings& settings) {
  const Kind* kind = find_kind(settings.kind);
  if (kind == nullptr) {
    return invalid("optimizer kind " + std::to_string(static_cast<int>(settings.kind)) +
                   " is not in the list");
  }
  for (const Parameter& parameter : kind->parameters) {
    const double value = settings.*(parameter.member);
    if (!in_range(value, parameter.range)) return out_of_range(*kind, parameter, shortest_text(value));
  }
  return {};
}

}  // namespace deltawire
