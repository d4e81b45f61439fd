// Reads arrays of any size in limited memory.
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

  // Reads the next `count` values, row-major, in the machine's byte order, of info().type. Errors at the end
  // of the file show only once the whole array is read. REQUIRES: as many values are left.
  virtual Outcome<void> read(void* values, std::uint64_t count) = 0;

 protected:
  ArrayInfo info_;
};

// Opens the array of a .npy file: little or big endian, in C or Fortran order. `name` is for messages.
Outcome<std::unique_ptr<ArrayReader>> open_npy(std::unique_ptr<ByteSource> bytes, const std::string& name);

inline constexpr std::string_view kDwMagic = "DWFILE";  // the first bytes of a .dw file

// Opens the array of a .dw file.
Outcome<std::unique_ptr<ArrayReader>> open_dw(std::unique_ptr<ByteSource> bytes, const std::string& name);

// The header of a .npy file in C order: the same bytes as by numpy.save.
std::string npy_header(const ArrayInfo& info);

// Converts to float32. Returns the index of the first value, other than NaN, that is not exactly a float32;
// `count` if there is none.
std::uint64_t narrow_values(const double* values, std::uint64_t count, float* out);

}  // namespace deltawire::cli
