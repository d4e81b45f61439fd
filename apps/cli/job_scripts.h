// The files of examples/ that `deltawire doctor --format` prints.
#pragma once

#include <string_view>

namespace deltawire::cli {

extern const std::string_view kSlurmScript;
extern const std::string_view kJobSet;

}  // namespace deltawire::cli
