#include "deltawire/spec.h"

#include <algorithm>

#include "base/errors.h"
#include "base/spec_text.h"
#include "channel/codec_rules.h"
#include "codecs/spec_string.h"
#include "deltawire/reducer.h"
#include "reduce/reducer_spec.h"

namespace deltawire {
namespace {

Result<SpecRule> rule_of(const CodecRules::Rule& rule, bool is_only) {
  SpecRule made;
  made.name_pattern = rule.name_pattern;
  made.codec = rule.text();
  made.codec_alone = rule.codec->spec();
  made.text = rule.conditions_text + (rule.fits_all() ? (is_only ? "" : "rest ") : ": ") + made.codec;
  ASSIGN_OR_RETURN(made.codec_parameters, parse_named_parameters(made.codec_alone));
  made.info = &rule.codec->info();
  made.recipe = rule.recipe.name;
  made.momentum = rule.feedback.momentum;
  made.changes_input = rule.feedback.changes_input();
  made.names_steps = std::ranges::any_of(
      rule.conditions, [](const auto& each) { return each.property == CodecRules::Property::kStep; });
  made.is_late = rule.is_late();
  return made;
}

// With a number in place of "host".
Result<std::string> with_ranks_of_host(std::string_view pattern, std::uint64_t ranks_of_host) {
  ASSIGN_OR_RETURN(const auto given, parse_named_parameters(pattern, "exchange pattern"));
  if (given.name != "hierarchical" || given.value("group") != "host") return std::string(pattern);
  if (ranks_of_host == 0) {
    return invalid(
        "'" + std::string(pattern) +
        "' needs LOCAL_WORLD_SIZE, which torchrun sets; without it, give the number of ranks on each "
        "host, group=8");
  }
  std::string text = given.name;
  for (const auto& [key, value] : given.parameters) {
    text += (text == given.name ? ":" : ",") + key + "=";
    text += key == "group" ? std::to_string(ranks_of_host) : value;
  }
  return text;
}

// Whether a rule's codec has a `pull` that is an s, as 3lc's, and the spec doesn't say which.
bool leaves_pull_open(const SpecRule& rule) {
  const auto is_pull = [](const ParameterInfo& each) {
    return each.name == "pull" && each.default_value == "s";
  };
  return std::ranges::any_of(rule.info->parameters, is_pull) && rule.codec_parameters.value("pull").empty();
}

// "conv*: ", "rest " or "".
std::string conditions_of(const SpecRule& rule) {
  return rule.text.substr(0, rule.text.size() - rule.codec.size());
}

// " with clip=1" or "".
std::string feedback_of(const SpecRule& rule) {
  return rule.codec.substr(rule.codec_alone.size());
}

struct Replaced {
  std::string text;    // of a rule
  std::string recipe;  // that it was written as
};

// The spec with other rules.
Result<Spec> replaced(const Spec& spec, std::span<const Replaced> rules) {
  const std::string codecs = list_of(rules, ", ", &Replaced::text);
  ASSIGN_OR_RETURN(auto made, Spec::parse(spec.pattern + "(" + codecs + ")"));
  // What only the text as it was given says.
  for (std::size_t i = 0; i < rules.size(); ++i) made.rules[i].recipe = rules[i].recipe;
  made.given = spec.given;
  made.names_pattern = spec.names_pattern;
  made.keeps_inner_momentum = spec.keeps_inner_momentum;
  made.holds_back = spec.holds_back;
  return made;
}

}  // namespace

std::string_view NamedParameters::value(std::string_view key) const noexcept {
  for (const auto& [own_key, value] : parameters) {
    if (own_key == key) return value;
  }
  return {};
}

Result<NamedParameters> parse_named_parameters(std::string_view text, std::string_view kind) {
  ASSIGN_OR_RETURN(const auto parsed, parse_spec(text, kind));
  NamedParameters made{std::string(parsed.name), {}};
  for (const SpecParameter& each : parsed.parameters) made.parameters.emplace_back(each.key, each.value);
  return made;
}

bool SpecRule::matches(std::string_view tensor) const noexcept {
  return name_pattern.empty() || name_matches(name_pattern, tensor);
}

bool Spec::any(bool CodecInfo::* property) const noexcept {
  return std::ranges::any_of(rules, [&](const SpecRule& rule) { return rule.info->*property; });
}

Result<Spec> Spec::with_pull(float pull) const {
  if (!pattern_traits(pattern_name).codes_means || std::ranges::none_of(rules, leaves_pull_open))
    return *this;
  std::vector<Replaced> made;
  for (const SpecRule& rule : rules) {
    const std::string finer = leaves_pull_open(rule) ? ",pull=" + canonical_number(pull) : "";
    made.push_back({conditions_of(rule) + rule.codec_alone + finer + feedback_of(rule), rule.recipe});
  }
  return replaced(*this, made);
}

Result<Spec> Spec::with_first_steps(std::string_view codec,
                                    const std::function<std::uint64_t(const SpecRule&)>& steps_of) const {
  if (std::ranges::any_of(rules, &SpecRule::names_steps)) return *this;
  std::vector<Replaced> made;
  for (const SpecRule& rule : rules) {
    const std::string conditions = conditions_of(rule);
    const bool fits_all = &rule == &rules.back();
    if (const std::uint64_t steps = steps_of(rule); steps > 0) {
      const std::string others = fits_all ? "" : conditions.substr(0, conditions.size() - 2) + " ";
      made.push_back(
          {others + "step<" + std::to_string(steps) + ": " + std::string(codec) + feedback_of(rule), {}});
    }
    made.push_back({fits_all ? "rest " + rule.codec : rule.text, rule.recipe});
  }
  return made.size() == rules.size() ? *this : replaced(*this, made);
}

Result<Spec> Spec::parse(std::string_view text, const SpecDefaults& defaults) {
  ASSIGN_OR_RETURN(const auto given, split_reducer_spec(text, defaults.pattern));
  ASSIGN_OR_RETURN(const auto pattern, with_ranks_of_host(given.pattern, defaults.ranks_of_host));
  ASSIGN_OR_RETURN(const auto rules, CodecRules::parse(given.codecs, {.shows_weights = true}));
  // A reducer takes no recipe that holds back, but its codec.
  const bool holds_back = rules.rules().front().recipe.weights;
  const std::string codecs = holds_back ? rules.spec() : std::string(given.codecs);
  ASSIGN_OR_RETURN(const auto reducer, make_reducer(pattern + "(" + codecs + ")"));

  Spec spec;
  spec.text = reducer->spec();
  spec.given = text;
  ASSIGN_OR_RETURN(const auto parts, split_reducer_spec(spec.text));
  spec.pattern = parts.pattern;
  spec.pattern_name = spec.pattern.substr(0, spec.pattern.find(':'));
  spec.names_pattern = given.names_pattern;
  spec.codecs = parts.codecs;
  for (const CodecRules::Rule& rule : rules.rules()) {
    ASSIGN_OR_RETURN(spec.rules.emplace_back(), rule_of(rule, rules.rules().size() == 1));
    spec.keeps_inner_momentum = spec.keeps_inner_momentum || rule.recipe.keeps_inner_momentum;
    spec.holds_back = spec.holds_back || rule.recipe.weights;
  }
  const PatternTraits traits = pattern_traits(spec.pattern_name);
  spec.keeps_residual = traits.keeps_residual || spec.any(&CodecInfo::error_feedback);
  spec.sends_sums = traits.sends_sums;
  spec.takes_backend = traits.takes_backend;
  return spec;
}

}  // namespace deltawire
