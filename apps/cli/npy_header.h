// The header of a .npy file: a Python dictionary as text.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/outcome.h"

namespace deltawire::cli {

struct NpyHeader {
  std::string descr;  // "<f4"; empty for a structured dtype
  bool fortran_order = false;
  std::vector<std::uint64_t> shape;
};

// Parses "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }" in any order and spacing. The
// failure's message says what is wrong, without the file's name.
Outcome<NpyHeader> parse_npy_header(std::string_view text);

}  // namespace deltawire::cli
