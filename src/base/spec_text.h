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

// A spec string taken apart; the views lie in the text that was parsed.
struct ParsedSpec {
  std::string_view name;
  std::vector<SpecParameter> parameters;  // in the order of the text; no key twice
};

// Splits `text`. kInvalidArgument for an empty name or parameter, a parameter without '=', or a key twice;
// `kind` is the word for what the name should have been, in the message.
Result<ParsedSpec> parse_spec(std::string_view text, std::string_view kind = "codec");

// The parameter of that key; nullptr where the spec doesn't name it.
const SpecParameter* find_parameter(const ParsedSpec& spec, std::string_view key);

}  // namespace deltawire
