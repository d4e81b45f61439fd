#include "codecs/spec_string.h"

#include <cassert>
#include <charconv>
#include <cmath>
#include <system_error>

#include "base/errors.h"

namespace deltawire {

namespace {

std::string quoted(std::string_view text) {
  return "\"" + std::string(text) + "\"";
}

std::optional<float> number_in(std::string_view text, const FloatRange& range) {
  const auto value = parse_number<float>(text);
  // Written so that NaN, which compares false with everything, is refused.
  const bool in_range = value && *value >= range.low && *value < range.high;
  return in_range ? value : std::nullopt;
}

tl::unexpected<Error> out_of_range(const ParsedSpec& spec, const SpecParameter& given,
                                   const FloatRange& range) {
  const std::string key(given.key);
  return invalid(std::string(spec.name) + ": " + key + "=" + std::string(given.value) +
                 " is out of range: give a number " + canonical_number(range.low) + " <= " + key + " < " +
                 canonical_number(range.high));
}

}  // namespace

Status check_parameter_names(const ParsedSpec& spec, std::span<const ParameterInfo> known) {
  for (const SpecParameter& given : spec.parameters) {
    const auto has_its_name = [&](const ParameterInfo& parameter) { return parameter.name == given.key; };
    if (std::ranges::any_of(known, has_its_name)) continue;
    std::string message = std::string(spec.name) + " has no parameter " + quoted(given.key) + ": it has ";
    if (known.empty()) message += "none";
    for (const ParameterInfo& parameter : known) {
      if (&parameter != known.data()) message += ", ";
      message += std::string(parameter.name) + " (" + std::string(parameter.range) + ")";
    }
    return invalid(message);
  }
  return {};
}

Result<float> float_parameter(const ParsedSpec& spec, std::string_view key, const FloatRange& range) {
  assert(range.low < range.high);
  const SpecParameter* given = find_parameter(spec, key);
  if (given == nullptr) return range.default_value;
  if (const auto value = number_in(given->value, range)) return *value;
  return out_of_range(spec, *given, range);
}

Result<float> fraction_parameter(const ParsedSpec& spec, std::string_view key, const FloatRange& range) {
  const SpecParameter* given = find_parameter(spec, key);
  if (given == nullptr || !given->value.ends_with('%')) return float_parameter(spec, key, range);
  // As text, so that it is rounded once: 0.1 / 100 in float32 need not be the float32 nearest to 0.001.
  const std::string text = std::string(given->value.substr(0, given->value.size() - 1)) + "e-2";
  if (const auto value = number_in(text, range)) return *value;
  return out_of_range(spec, *given, range);
}

Result<std::optional<float>> pull_parameter(const ParsedSpec& spec, std::string_view own,
                                            const FloatRange& range) {
  const SpecParameter* given = find_parameter(spec, "pull");
  if (given == nullptr || given->value == own) return std::nullopt;
  const auto pull = fraction_parameter(spec, "pull", range);
  if (!pull) return forward_error(pull);
  return *pull;
}

Result<std::size_t> choice_parameter(const ParsedSpec& spec, std::string_view key,
                                     std::span<const std::string_view> choices, std::size_t default_choice) {
  assert(default_choice < choices.size());
  const SpecParameter* given = find_parameter(spec, key);
  if (given == nullptr) return default_choice;
  const auto at = std::find(choices.begin(), choices.end(), given->value);
  if (at != choices.end()) return static_cast<std::size_t>(at - choices.begin());
  std::string message = std::string(spec.name) + ": " + std::string(key) + "=" + std::string(given->value) +
                        " is not a choice: give ";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) message += i + 1 == choices.size() ? " or " : ", ";
    message += choices[i];
  }
  return invalid(message);
}

std::string canonical_number(float value) {
  char text[64];  // the smallest subnormals take 48
  const auto [end, error] = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed);
  return std::string(text, error == std::errc() ? end : text);
}

std::string number_text(float value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Inf" : "-Inf";
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return std::string(text, error == std::errc() ? end : text);
}

}  // namespace deltawire
