// Reducer specs: "pattern(codecs)", or "codecs" with their default pattern. One row a pattern.
#include <algorithm>
#include <array>
#include <string>

#include "base/errors.h"
#include "base/spec_text.h"
#include "channel/codec_rules.h"
#include "deltawire/reducer.h"
#include "reduce/patterns/patterns.h"
#include "reduce/reducer_spec.h"

namespace deltawire {
namespace {

constexpr int kMaxThreads = 64;

struct Pattern {
  std::string_view name;
  Result<std::unique_ptr<WakeableReducer>> (*make)(const ParsedSpec& pattern, std::string_view codecs,
                                                   const ReducerOptions& options);
  PatternTraits traits = {};
  std::array<std::string_view, 2> parameters = {};  // those that it has
  std::string_view default_codecs = {};             // where the pattern stands alone, as it may then

  bool has(std::string_view parameter) const {
    return std::ranges::find(parameters, parameter) != parameters.end();
  }
};

constexpr std::array<Pattern, 5> kPatterns{{
    {"direct",
     [](const auto&, auto codecs, const auto& options) { return make_direct_reducer(codecs, options); },
     {.takes_backend = true, .codes_means = true}},
    {"ring",
     [](const auto&, auto codecs, const auto& options) { return make_ring_reducer(codecs, options); },
     {.takes_backend = true, .sends_sums = true, .codes_means = true}},
    {"gather",
     [](const auto&, auto codecs, const auto& options) { return make_gather_reducer(codecs, options); },
     {.takes_backend = true}},
    {"powersgd", make_powersgd_reducer, {.keeps_residual = true, .codes_means = true}, {"rank"}, "fp32"},
    {"hierarchical",
     make_hierarchical_reducer,
     {.sends_sums = true, .codes_means = true},
     {"group", "within"}},
}};

std::string known_parameters(const Pattern& pattern) {
  std::string names;
  for (const std::string_view name : pattern.parameters) {
    if (!name.empty()) names += (names.empty() ? "; it has " : " and ") + std::string(name);
  }
  return names;
}

// Of a spec without brackets: "powersgd:rank=4" is a pattern, "powersgd: 3lc, rest fp32" are rules.
const Pattern* pattern_alone(std::string_view spec) {
  const std::string_view name = spec.substr(0, spec.find(':'));
  const bool is_rule = spec.substr(name.size()).starts_with(": ");
  for (const Pattern& pattern : kPatterns) {
    if (pattern.name == name && !is_rule) return &pattern;
  }
  return nullptr;
}

}  // namespace

PatternTraits pattern_traits(std::string_view name) noexcept {
  const auto pattern = std::ranges::find(kPatterns, name, &Pattern::name);
  return pattern == kPatterns.end() ? PatternTraits{} : pattern->traits;
}

Result<SplitSpec> split_reducer_spec(std::string_view spec, std::string_view default_pattern) {
  const auto open = spec.find('(');
  if (open == std::string_view::npos) {
    if (const Pattern* alone = pattern_alone(spec); alone != nullptr) {
      if (!alone->default_codecs.empty()) return SplitSpec{spec, alone->default_codecs, true};
      const std::string text(spec);
      return invalid("the exchange pattern " + text + " lacks its codec; write e.g. " + text + "(bf16)");
    }
    if (!default_pattern.empty()) return SplitSpec{default_pattern, spec};
    const auto rules =
        CodecRules::parse(spec, {.shows_weights = true});  // who codes by them looks for what they need
    if (!rules) return forward_error(rules);
    if (!rules->default_pattern().empty()) return SplitSpec{rules->default_pattern(), spec};
    return invalid("the codecs in '" + std::string(spec) +
                   "' go by different exchange patterns; write the one to use, "
                   "e.g. direct(" +
                   std::string(spec) + ")");
  }
  if (spec.back() != ')') {
    return invalid("reducer spec '" + std::string(spec) +
                   "' lacks its closing bracket; write pattern(codec)");
  }
  return SplitSpec{spec.substr(0, open), spec.substr(open + 1, spec.size() - open - 2), true};
}

Result<std::unique_ptr<WakeableReducer>> make_wakeable_reducer(std::string_view spec,
                                                               const ReducerOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return invalid("threads=" + std::to_string(options.threads) + " must be 1 to " +
                   std::to_string(kMaxThreads) + ", or 0 for the process's");
  }
  ASSIGN_OR_RETURN(const SplitSpec parts, split_reducer_spec(spec));
  ASSIGN_OR_RETURN(const ParsedSpec named, parse_spec(parts.pattern, "exchange pattern"));
  for (const Pattern& pattern : kPatterns) {
    if (pattern.name != named.name) continue;
    for (const SpecParameter& given : named.parameters) {
      if (pattern.has(given.key)) continue;
      return invalid("the exchange pattern " + std::string(pattern.name) + " has no parameter '" +
                     std::string(given.key) + "'" + known_parameters(pattern));
    }
    if (options.backend && !pattern.traits.takes_backend) {
      return invalid("the exchange pattern " + std::string(pattern.name) +
                     " codes on the CPU alone; take direct, ring or gather, "
                     "or no backend");
    }
    return pattern.make(named, parts.codecs, options);
  }
  return invalid("unknown exchange pattern '" + std::string(parts.pattern) +
                 "'; known: " + list_of(kPatterns, ", ", &Pattern::name));
}

Result<std::unique_ptr<Reducer>> make_reducer(std::string_view spec, const ReducerOptions& options) {
  return make_wakeable_reducer(spec, options);
}

Result<std::string> agreed_settings(std::string_view spec, const ReducerOptions& options) {
  ASSIGN_OR_RETURN(const auto reducer, make_wakeable_reducer(spec, options));
  return reducer->spec() + " min_elements=" + std::to_string(options.policy.min_elements) +
         " revert=" + (options.revert == Revert::kExact ? "exact" : "fold") +
         " nonfinite=" + (options.policy.nonfinite == NonFinite::kPass ? "pass" : "error") +
         (options.backend ? " coded=on-device" : "");
}

}  // namespace deltawire
