// Spec strings: "name" or "name:key=value,key=value", the text from which a codec or an optimizer is made.
#pragma once

#include <string>
#include <string_view>
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

// The shortest decimal text that reads back as the same number; "inf", "-inf" and "nan" for others.
std::string shortest_text(double number);

}  // namespace deltawire
