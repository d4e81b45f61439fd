// The headers of NumPy's .npy files.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arrays/array_reader.h"
#include "cli/outcome.h"
#include "deltawire/tensor.h"

namespace deltawire::cli {

struct NpyInfo {
  std::vector<std::uint64_t> shape;
  ValueType type = ValueType::kF32;
  bool big_endian = false;
  bool fortran_order = false;
  std::uint64_t count = 0;
};

// Reads the header of a .npy file (versions 1 to 3) and leaves `source` at its values. Fails for a dtype that
// no codec takes; with `of_keys`, for all but int64.
NpyInfo read_npy_info(ByteSource& source, const std::string& name, bool of_keys);

struct NpyHeader {
  std::string descr;  // "<f4", also for "=f4", "f4" and "float32"; empty for a structured dtype
  bool fortran_order = false;
  std::vector<std::uint64_t> shape;
};

// Parses "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }" in any order and spacing. The
// failure's message lacks the file's name.
NpyHeader parse_npy_header(std::string_view text);

}  // namespace deltawire::cli
