// Spec strings: "name" or "name:key=value,key=value", the text from which a codec or an optimizer is made.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "deltawire/result.h"

namespace deltawire {

struct SpecParameter {
  std::string_view key;
  std::string_view value;
};

// A parsed spec string; the views point into the parsed text.
struct ParsedSpec {
  std::string_view name;
  std::vector<SpecParameter> parameters;  // in the order of the text; no key twice
};

// Splits `text`. kInvalidArgument for an empty name or parameter, a parameter without '=', or a repeated key.
// `kind` is what the name stands for, in the message.
Result<ParsedSpec> parse_spec(std::string_view text, std::string_view kind = "codec");

// The parameter with that key; nullptr if the spec doesn't have it.
const SpecParameter* find_parameter(const ParsedSpec& spec, std::string_view key);

// The number that the text is, all of it; nothing where it is none, or out of range.
template <class Number>
std::optional<Number> parse_number(std::string_view text) noexcept {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [read_to, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && read_to == end ? std::optional(number) : std::nullopt;
}

// The shortest decimal text that reads back as the same number; "inf", "-inf" and "nan" for others.
std::string shortest_text(double number);

}  // namespace deltawire
