#include "channel/codec_rules.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "base/errors.h"
#include "base/spec_text.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
constexpr std::string_view kRest = "rest ";
constexpr std::string_view kCodecFollows = ": ";

// Without blanks and line breaks at both ends: rules may stand in several lines.
std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Up to the next `separator`, which goes, too.
std::string_view take_until(std::string_view& rest, char separator) {
  const std::size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view taken = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return taken;
}

// A codec's own parameters have commas, too: a rule goes on until another one begins.
std::vector<std::string_view> split_rules(std::string_view text) {
  std::vector<std::string_view> rules;
  std::string_view rest = text;
  do {
    const std::string_view piece = take_until(rest, ',');
    const bool begins = trim(piece).starts_with(kRest) || piece.find(kCodecFollows) != std::string_view::npos;
    if (rules.empty() || begins) {
      rules.push_back(piece);
    } else {
      rules.back() = {rules.back().data(), piece.data() + piece.size()};
    }
  } while (!rest.empty());
  return rules;
}

tl::unexpected<Error> bad_rule(const std::string& message) {
  return invalid("codec rules: " + message);
}

// "3lc: s=1" reads as the tensors named 3lc and the codec s=1.
tl::unexpected<Error> parameters_apart(std::string_view codec, std::string_view parameters) {
  return bad_rule("'" + std::string(codec) + ": " + std::string(parameters) +
                  "' is a rule for tensors named '" + std::string(codec) +
                  "'; a codec's parameters follow without spaces: '" + std::string(codec) + ":" +
                  std::string(parameters) + "'");
}

}  // namespace

bool name_matches(std::string_view pattern, std::string_view name) noexcept {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;  // the last one, and
  std::size_t resume = 0;                     // where it goes on when what follows it does not match
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

Result<CodecRules::Condition> CodecRules::parse_condition(std::string_view text) {
  constexpr std::pair<std::string_view, Property> kProperties[] = {
      {"elements", Property::kElements}, {"dims", Property::kDims}, {"step", Property::kStep}};
  for (const auto& [word, property] : kProperties) {
    if (!text.starts_with(word)) continue;
    std::string_view rest = text.substr(word.size());
    const std::size_t digits = std::min(rest.find_first_not_of("<>="), rest.size());
    const std::string_view relation = rest.substr(0, digits);
    rest.remove_prefix(digits);
    const auto number = parse_number<std::uint64_t>(rest);
    if (!number) break;
    if (relation == "=") return Condition{property, *number, *number};
    if (relation == "<=") return Condition{property, 0, *number};
    if (relation == ">=") return Condition{property, *number, kMost};
    if (relation == "<" && *number > 0) return Condition{property, 0, *number - 1};
    if (relation == ">" && *number < kMost) return Condition{property, *number + 1, kMost};
    break;
  }
  return bad_rule("'" + std::string(text) +
                  "' is no condition; give a name pattern first, then elements, dims or step with "
                  "<, <=, =, >= or > and a number, e.g. 'conv* elements>=4096 step<100: 3lc'");
}

Status CodecRules::add(std::string_view conditions, std::string_view codec_spec) {
  ASSIGN_OR_RETURN(const auto stages, stages_of_recipe(codec_spec));
  if (stages.empty()) return add_rule(conditions, codec_spec, {});
  const RecipeNeeds needs = needs_of_recipe(codec_spec);
  for (const RecipeStage& stage : stages) {
    const std::string both = std::string(conditions) + " " + stage.condition;
    RETURN_IF_ERROR(add_rule(trim(both), stage.codec, needs));
  }
  return {};
}

Status CodecRules::add_rule(std::string_view conditions, std::string_view codec_spec,
                            const RecipeNeeds& recipe) {
  Rule rule;
  rule.recipe = recipe;
  if (const std::size_t with = codec_spec.find(kFeedbackFollows); with != std::string_view::npos) {
    ASSIGN_OR_RETURN(rule.feedback, parse_feedback(trim(codec_spec.substr(with + kFeedbackFollows.size()))));
    has_feedback_ = has_feedback_ || !rule.feedback.is_none();
    codec_spec = trim(codec_spec.substr(0, with));
  }
  Result<std::unique_ptr<const Codec>> codec = make_codec(codec_spec);
  if (!codec && make_codec(trim(conditions))) return parameters_apart(trim(conditions), codec_spec);
  if (codec && use_.of_means) codec = make_codec((*codec)->mean_spec());
  if (!codec) return forward_error(codec);
  rule.codec = std::move(*codec);
  for (std::size_t i = 0; i < 2 && rule.codec->info().half_form; ++i) {
    ASSIGN_OR_RETURN(rule.half_forms[i], make_half_form(*rule.codec, i == 0 ? DType::kBF16 : DType::kF16));
  }
  std::string& text = rule.conditions_text;
  while (!conditions.empty()) {
    const std::string_view condition = take_until(conditions, ' ');
    if (condition.empty()) continue;
    if (text.empty() && condition.find_first_of("<>=") == std::string_view::npos) {
      rule.name_pattern = condition;
    } else {
      ASSIGN_OR_RETURN(rule.conditions.emplace_back(), parse_condition(condition));
    }
    text += (text.empty() ? "" : " ") + std::string(condition);
  }
  if (!rules_.empty()) spec_ += ", " + (text.empty() ? std::string(kRest) : "");
  spec_ += text + (text.empty() ? "" : std::string(kCodecFollows)) + rule.text();
  rules_.push_back(std::move(rule));
  return {};
}

bool CodecRules::Rule::fits(const Named& part, std::uint64_t step) const noexcept {
  if (!name_pattern.empty() && !name_matches(name_pattern, part.name)) return false;
  return std::ranges::all_of(conditions, [&](const Condition& condition) {
    std::uint64_t number = step;
    if (condition.property == Property::kElements) number = part.whole_elements();
    if (condition.property == Property::kDims) number = part.whole_dims();
    return condition.least <= number && number <= condition.most;
  });
}

Result<CodecRules> CodecRules::parse(std::string_view text, const RulesUse& use) {
  CodecRules rules;
  rules.use_ = use;
  for (const std::string_view each : split_rules(text)) {
    const std::string_view rule = trim(each);
    if (!rules.rules_.empty() && rules.rules_.back().fits_all()) {
      return bad_rule("'" + std::string(rule) + "' comes after the codec for the rest; put it before");
    }
    std::string_view codec_spec = rule;
    std::string_view conditions;
    if (rule.find(kCodecFollows) != std::string_view::npos) {
      conditions = rule.substr(0, rule.find(kCodecFollows));
      codec_spec = trim(rule.substr(conditions.size() + kCodecFollows.size()));
    } else if (rule.starts_with(kRest)) {
      codec_spec = trim(rule.substr(kRest.size()));
    }
    RETURN_IF_ERROR(rules.add(conditions, codec_spec));
  }
  const bool weights_needed =
      std::ranges::any_of(rules.rules_, [](const Rule& rule) { return rule.recipe.weights; });
  if (weights_needed && (!use.shows_weights || rules.rules_.size() > 1)) return needs_weights();
  if (rules.rules_.back().fits_all()) return rules;
  return bad_rule("there is none for the rest; end them with 'rest CODEC', e.g. 'rest fp32'");
}

const CodecRules::Rule& CodecRules::rule_of(const Named& part, std::uint64_t step) const noexcept {
  assert(!rules_.empty() && rules_.back().fits_all());
  return *std::ranges::find_if(rules_, [&](const Rule& rule) { return rule.fits(part, step); });
}

const Codec* CodecRules::half_form(const Named& part, std::uint64_t step) const noexcept {
  switch (part.own_dtype()) {
    case DType::kBF16: return rule_of(part, step).half_forms[0].get();
    case DType::kF16: return rule_of(part, step).half_forms[1].get();
    default: return nullptr;
  }
}

// Another rule can fit only from a step on with which a condition begins to hold, or has ended.
std::uint64_t CodecRules::next_change(const Named& part, std::uint64_t step) const {
  std::vector<std::uint64_t> edges;
  for (const Rule& rule : rules_) {
    for (const Condition& condition : rule.conditions) {
      if (condition.property != Property::kStep) continue;
      edges.push_back(condition.least);
      if (condition.most < kMost) edges.push_back(condition.most + 1);
    }
  }
  std::ranges::sort(edges);
  const std::string now = text_of(part, step);
  const auto change = std::ranges::find_if(
      edges, [&](std::uint64_t edge) { return edge > step && text_of(part, edge) != now; });
  return change == edges.end() ? kNoStep : *change;
}

std::string_view CodecRules::default_pattern() const noexcept {
  const std::string_view first = rules_.front().codec->info().default_pattern;
  const auto same = [&](const Rule& rule) { return rule.codec->info().default_pattern == first; };
  return std::ranges::all_of(rules_, same) ? first : std::string_view{};
}

}  // namespace deltawire
