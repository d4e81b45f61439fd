// Reading a whole file, or standard input.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/outcome.h"

namespace deltawire::cli {

// "-" is standard input.
Outcome<std::vector<std::byte>> read_input(const std::string& path);

}  // namespace deltawire::cli
