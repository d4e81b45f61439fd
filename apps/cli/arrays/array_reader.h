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

enum class ValueType : std::uint8_t { kF32, kF64, kF16, kBF16, kI64 };

std::uint64_t value_bytes(ValueType type) noexcept;
ValueType value_type(DType dtype) noexcept;

// The type in which codecs take them: 16-bit types stay, float64 becomes float32.
DType coded_type(ValueType type) noexcept;

struct ArrayInfo {
  std::vector<std::uint64_t> shape;
  ValueType type = ValueType::kF32;
  std::uint64_t count = 0;
  std::string codec = {};  // the spec that a .dw file was encoded by
  bool is_plain = true;    // in the file, too: little-endian, in C order

  std::uint64_t bytes() const noexcept { return count * value_bytes(type); }
};

class ArrayReader {
 public:
  virtual ~ArrayReader() = default;

  const ArrayInfo& info() const noexcept { return info_; }

  // Reads the next `count` values, row-major, in the machine's byte order, of info().type. Errors at the end
  // of the file show only once the whole array is read. REQUIRES: as many values are left.
  virtual void read(void* values, std::uint64_t count) = 0;

 protected:
  ArrayInfo info_;
};

// Reads the next `count` values, the first of which is number `first` of the array, as codecs take them.
// Fails for a float64 that is not exactly a float32.
void read_coded(ArrayReader& array, const std::string& name, std::uint64_t first, std::uint64_t count,
                std::byte* out);

// All values of the array as float32. Fails where read_coded does.
std::vector<float> read_floats(ArrayReader& array, const std::string& name);

// Opens the array of a .npy file: little or big endian, in C or Fortran order; `of_keys`: one of int64.
// `name` is for messages.
std::unique_ptr<ArrayReader> open_npy(std::unique_ptr<ByteSource> bytes, const std::string& name,
                                      bool of_keys = false);

inline constexpr std::string_view kDwMagic = "DWFILE";  // the first bytes of a .dw file

// Opens the array of a .dw file.
std::unique_ptr<ArrayReader> open_dw(std::unique_ptr<ByteSource> bytes, const std::string& name);

// The header of a .npy file in C order: the same bytes as by numpy.save.
std::string npy_header(const ArrayInfo& info);
// The same of a dtype and a shape as NumPy writes them.
std::string npy_header(const std::string& descr, const std::string& shape);

}  // namespace deltawire::cli
