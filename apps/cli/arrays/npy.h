// NumPy's .npy files: their headers, and in-memory arrays of float32 and int64.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arrays/array_reader.h"
#include "cli/outcome.h"
#include "deltawire/tensor.h"

namespace deltawire::cli {

struct NpyArray {
  std::vector<std::uint64_t> shape;
  TensorView tensor;  // into the parsed file
};

// Parses a whole .npy file (versions 1 to 3), `name` in messages. The array views `file`, which must outlive
// it; values are moved inside it only to align them. Checks every length before it is used.
Outcome<NpyArray> parse_npy(std::vector<std::byte>& file, const std::string& name);

struct NpyKeys {
  std::vector<std::uint64_t> shape;
  std::span<const std::int64_t> keys;  // into the parsed file
};

// The same for an int64 array: the keys of a tensor in key-value form.
Outcome<NpyKeys> parse_npy_keys(std::vector<std::byte>& file, const std::string& name);

struct NpyInfo {
  std::vector<std::uint64_t> shape;
  ValueType type = ValueType::kF32;
  bool big_endian = false;
  bool fortran_order = false;
  std::uint64_t count = 0;
};

// Reads the header of a .npy file and leaves `source` at its values. Fails for a dtype that no codec takes.
Outcome<NpyInfo> read_npy_info(ByteSource& source, const std::string& name);

struct NpyHeader {
  std::string descr;  // "<f4", also for "=f4", "f4" and "float32"; empty for a structured dtype
  bool fortran_order = false;
  std::vector<std::uint64_t> shape;
};

// Parses "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }" in any order and spacing. The
// failure's message lacks the file's name.
Outcome<NpyHeader> parse_npy_header(std::string_view text);

}  // namespace deltawire::cli
