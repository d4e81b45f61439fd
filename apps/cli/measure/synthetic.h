// Inputs that are drawn instead of read: the same values for the same text, everywhere.
#pragma once

#include <string>
#include <string_view>

#include "cli/measure/input.h"

namespace deltawire::cli {

inline constexpr std::string_view kSyntheticPrefix = "synthetic:";

// "synthetic:NAME" or "synthetic:NAME:n=65536,seed=7". Failures (exit status 2) list the names.
Outcome<Input> synthetic_input(const std::string& text, bool small);

// A line for each name: what its values are.
std::string synthetic_names();

}  // namespace deltawire::cli
