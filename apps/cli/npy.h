// NumPy's .npy files: what their headers say, and traces' arrays of float32 and int64 as they lie in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/arrays/array_reader.h"
#include "cli/outcome.h"
#include "deltawire/tensor.h"

namespace deltawire::cli {

struct NpyArray {
  std::vector<std::uint64_t> shape;
  TensorView tensor;  // in the bytes that were parsed
};

// Parses the content of a .npy file (versions 1 to 3) named `name` in messages. The values stay where they
// are but for alignment: `file` must outlive the array. Every length in the file is checked before it is
// used.
Outcome<NpyArray> parse_npy(std::vector<std::byte>& file, const std::string& name);

struct NpyKeys {
  std::vector<std::uint64_t> shape;
  std::span<const std::int64_t> keys;  // in the bytes that were parsed
};

// The same of an int64 array: the keys of a tensor in key-value form.
Outcome<NpyKeys> parse_npy_keys(std::vector<std::byte>& file, const std::string& name);

struct NpyInfo {
  std::vector<std::uint64_t> shape;
  ValueType type = ValueType::kF32;
  bool big_endian = false;
  bool fortran_order = false;
  std::uint64_t count = 0;
};

// Reads the header off the front of a .npy file: its values are what follows. Refuses a dtype that no codec
// takes.
Outcome<NpyInfo> read_npy_info(ByteSource& source, const std::string& name);

}  // namespace deltawire::cli
