// An array that is read value by value, in memory that doesn't grow with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arrays/byte_source.h"
#include "cli/outcome.h"
#include "deltawire/tensor.h"

namespace deltawire::cli {

enum class ValueType : std::uint8_t { kF32, kF64, kF16, kBF16 };

std::uint64_t value_bytes(ValueType type) noexcept;
std::string_view value_name(ValueType type) noexcept;  // "float32"
ValueType value_type(DType dtype) noexcept;

struct ArrayInfo {
  std::vector<std::uint64_t> shape;
  ValueType type = ValueType::kF32;
  std::uint64_t count = 0;

  std::uint64_t bytes() const noexcept { return count * value_bytes(type); }
};

class ArrayReader {
 public:
  virtual ~ArrayReader() = default;

  const ArrayInfo& info() const noexcept { return info_; }

  // The next so many values, row-major, in the machine's byte order, of info().type. The whole array must be
  // read before it can be trusted: what is wrong with its end is found there. REQUIRES: they are left.
  virtual Outcome<void> read(void* values, std::uint64_t count) = 0;

 protected:
  ArrayInfo info_;
};

// The array of a .npy file: little or big endian, in C or Fortran order. `name` is for messages.
Outcome<std::unique_ptr<ArrayReader>> open_npy(std::unique_ptr<ByteSource> bytes, const std::string& name);

inline constexpr std::string_view kDwMagic = "DWFILE";  // of every .dw file

// The array of a .dw file.
Outcome<std::unique_ptr<ArrayReader>> open_dw(std::unique_ptr<ByteSource> bytes, const std::string& name);

// What goes before the values of a .npy file in C order: the same bytes that numpy.save writes.
std::string npy_header(const ArrayInfo& info);

// Values of any type as float64, exactly.
void widen_values(const void* values, ValueType type, std::uint64_t count, double* out);

// The index of the first value that is no float32, NaN of any kind aside; `count` where all are.
std::uint64_t narrow_values(const double* values, std::uint64_t count, float* out);

}  // namespace deltawire::cli
