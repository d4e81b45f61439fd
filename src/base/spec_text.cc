#include "base/spec_text.h"

#include <algorithm>

#include "base/errors.h"

namespace deltawire {

namespace {

std::string quoted(std::string_view text) {
  return "\"" + std::string(text) + "\"";
}

Result<SpecParameter> parse_parameter(std::string_view text, std::string_view spec) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size()) {
    return invalid("spec " + quoted(spec) + ": " + quoted(text) +
                   " is not a parameter: write name:key=value,key=value");
  }
  return SpecParameter{text.substr(0, equals), text.substr(equals + 1)};
}

}  // namespace

Result<ParsedSpec> parse_spec(std::string_view text, std::string_view kind) {
  ParsedSpec spec;
  const std::size_t colon = text.find(':');
  spec.name = text.substr(0, colon);
  if (spec.name.empty()) {
    return invalid("spec " + quoted(text) + " names no " + std::string(kind) +
                   ": write name or name:key=value,key=value");
  }
  if (colon == std::string_view::npos) return spec;
  for (std::string_view rest = text.substr(colon + 1);;) {
    const std::size_t comma = rest.find(',');
    ASSIGN_OR_RETURN(const auto parameter, parse_parameter(rest.substr(0, comma), text));
    if (find_parameter(spec, parameter.key) != nullptr) {
      return invalid("spec " + quoted(text) + " gives " + quoted(parameter.key) + " twice: keep one");
    }
    spec.parameters.push_back(parameter);
    if (comma == std::string_view::npos) return spec;
    rest.remove_prefix(comma + 1);
  }
}

const SpecParameter* find_parameter(const ParsedSpec& spec, std::string_view key) {
  const auto at = std::ranges::find(spec.parameters, key, &SpecParameter::key);
  return at == spec.parameters.end() ? nullptr : &*at;
}

std::string shortest_text(double number) {
  char text[32];  // the longest takes 24
  return std::string(text, std::to_chars(text, text + sizeof text, number).ptr);
}

}  // namespace deltawire
