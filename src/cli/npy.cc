#include "cli/npy.h"

#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/npy_header.h"
#include "cli/number_text.h"

namespace deltawire::cli {
namespace {

static_assert(std::endian::native == std::endian::little, ".npy values are read and written in place");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::uint64_t kMaxDimensions = 8;                      // of a .dw file
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 32;  // a tensor has fewer
constexpr std::uint64_t kHeaderMultiple = 64;  // numpy.save pads so that the values are aligned

// What the values of an array have to be, in NumPy's words.
struct ValueType {
  const char* descr;
  const char* big_endian;
  const char* name;
  std::uint64_t bytes;
  const char* use;  // what deltawire does with them
};
constexpr ValueType kFloat32{"<f4", ">f4", "float32", 4, "encodes"};
constexpr ValueType kInt64{"<i8", ">i8", "int64", 8, "reads keys as"};

std::uint64_t little_endian(const std::byte* at, std::uint64_t bytes) {
  std::uint64_t number = 0;
  for (std::uint64_t i = 0; i < bytes; ++i) number |= std::to_integer<std::uint64_t>(at[i]) << (8 * i);
  return number;
}

struct HeaderText {
  std::string_view text;
  std::uint64_t data_at = 0;
};

Outcome<HeaderText> find_header(Bytes file, const std::string& name) {
  constexpr std::uint64_t kVersionEnd = 8;
  if (file.size() < kMagic.size() || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return failed(name + ": is no .npy file; make one in Python with numpy.save");
  }
  if (file.size() < kVersionEnd) return failed(name + ": ends within the .npy header; copy the file again");
  const auto version = std::to_integer<unsigned>(file[kMagic.size()]);
  if (version < 1 || version > 3) {
    return failed(name + ": .npy version " + std::to_string(version) +
                  " is none that deltawire reads (1 to 3); save the array again with numpy.save");
  }
  const std::uint64_t length_bytes = version == 1 ? 2 : 4;
  const std::uint64_t text_at = kVersionEnd + length_bytes;
  if (file.size() < text_at) return failed(name + ": ends within the .npy header; copy the file again");
  const std::uint64_t length = little_endian(file.data() + kVersionEnd, length_bytes);
  if (length > file.size() - text_at) {
    return failed(name + ": ends within the .npy header: expected " + grouped(length) + " bytes, found " +
                  grouped(file.size() - text_at) + "; copy the file again");
  }
  return HeaderText{{reinterpret_cast<const char*>(file.data()) + text_at, length}, text_at + length};
}

// "float64" for "<f8"; what stands there where NumPy's name isn't so regular.
std::string numpy_name(const std::string& descr) {
  if (descr.empty()) return "a structured dtype";
  std::string quoted = "'" + descr + "'";
  if (descr == "|b1") return "bool (" + quoted + ")";
  if (descr.size() < 3 || descr.find_first_not_of("0123456789", 2) != std::string::npos || descr.size() > 4) {
    return quoted;
  }
  const std::string bits = std::to_string(8 * std::stoul(descr.substr(2)));
  switch (descr[1]) {
    case 'f': return "float" + bits + " (" + quoted + ")";
    case 'i': return "int" + bits + " (" + quoted + ")";
    case 'u': return "uint" + bits + " (" + quoted + ")";
    case 'c': return "complex" + bits + " (" + quoted + ")";
    default: return quoted;
  }
}

// The failure's message lacks the file's name.
Outcome<void> check_layout(const NpyHeader& header, const ValueType& type) {
  if (header.descr == type.big_endian) {
    return failed("dtype '" + header.descr +
                  "' is big-endian, deltawire reads little-endian; convert it in Python with array.astype('" +
                  type.descr + "')");
  }
  if (header.descr != type.descr) {
    return failed("dtype " + numpy_name(header.descr) + ", but deltawire " + type.use + " " + type.name +
                  "; convert it in Python with array.astype('" + type.name + "')");
  }
  if (header.fortran_order) {
    return failed(
        "the array is in Fortran order, deltawire reads C order; convert it in Python with "
        "numpy.ascontiguousarray(array)");
  }
  if (header.shape.size() > kMaxDimensions) {
    return failed("the array has " + std::to_string(header.shape.size()) +
                  " dimensions, a .dw file at most 8; reshape it");
  }
  return {};
}

// Elements of the shape; nothing for 2^32 or more.
std::optional<std::uint64_t> element_count(std::span<const std::uint64_t> shape) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : shape) {
    // Both factors are below 2^32, so the product does not wrap.
    if (extent >= kMostElements) return std::nullopt;
    count *= extent;
    if (count >= kMostElements) return std::nullopt;
  }
  return count;
}

struct ValuesPlace {
  std::vector<std::uint64_t> shape;
  const std::byte* values = nullptr;
  std::uint64_t count = 0;
};

// Where an array of this type lies in the file; its values are moved where they are not aligned.
Outcome<ValuesPlace> find_values(std::vector<std::byte>& file, const std::string& name,
                                 const ValueType& type) {
  const auto place = find_header(file, name);
  if (!place) return tl::unexpected<Failure>(place.error());
  auto header = parse_npy_header(place->text);
  if (!header) return failed(name + ": " + header.error().message);
  if (auto layout = check_layout(*header, type); !layout) return failed(name + ": " + layout.error().message);
  const auto count = element_count(header->shape);
  if (!count) {
    return failed(name + ": the shape " + shape_text(header->shape) +
                  " has 2^32 elements or more; split the array");
  }
  const std::uint64_t expected = *count * type.bytes;
  const std::uint64_t found = file.size() - place->data_at;
  if (found != expected) {
    return failed(name + ": the shape " + shape_text(header->shape) + " needs " + grouped(expected) +
                  " bytes of values, found " + grouped(found) +
                  (found < expected ? "; the file is incomplete, copy it again"
                                    : "; save one array a file with numpy.save"));
  }
  std::byte* values = file.data() + place->data_at;
  if (place->data_at % type.bytes != 0) {  // old writers align to 16 bytes, foreign ones may not at all
    std::memmove(file.data(), values, expected);
    values = file.data();
  }
  return ValuesPlace{std::move(header->shape), values, *count};
}

}  // namespace

Outcome<NpyArray> parse_npy(std::vector<std::byte>& file, const std::string& name) {
  auto place = find_values(file, name, kFloat32);
  if (!place) return tl::unexpected<Failure>(place.error());
  return NpyArray{std::move(place->shape), TensorView{place->values, place->count, DType::kF32}};
}

Outcome<NpyKeys> parse_npy_keys(std::vector<std::byte>& file, const std::string& name) {
  auto place = find_values(file, name, kInt64);
  if (!place) return tl::unexpected<Failure>(place.error());
  return NpyKeys{std::move(place->shape),
                 {reinterpret_cast<const std::int64_t*>(place->values), place->count}};
}

std::string npy_float32_header(std::span<const std::uint64_t> shape) {
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape_text(shape) + ", }";
  constexpr std::size_t kPrefixBytes = 10;
  while ((kPrefixBytes + text.size() + 1) % kHeaderMultiple != 0) text += ' ';
  text += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\x00';
  header += static_cast<char>(text.size() & 0xFF);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace deltawire::cli
