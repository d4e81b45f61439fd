// NumPy's .npy files in C order: float32 tensors, which the command line reads and writes, and int64 keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

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

// What goes before the values of a float32 array: the same bytes that numpy.save writes.
std::string npy_float32_header(std::span<const std::uint64_t> shape);

}  // namespace deltawire::cli
