#include "cli/arrays/npy.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "base/little_endian.h"
#include "cli/number_text.h"

namespace deltawire::cli {
namespace {

static_assert(std::endian::native == std::endian::little, ".npy values are read and written in place");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::uint64_t kMaxDimensions = 8;                      // of a .dw file
constexpr std::uint64_t kMostElements = std::uint64_t{1} << 32;  // a tensor has fewer
constexpr std::uint64_t kHeaderMultiple = 64;  // numpy.save pads so that the values are aligned

// Reads a header off the front of files; members fail with a message that lacks the file's name.
class HeaderSource {
 public:
  explicit HeaderSource(ByteSource& source) : source_(source) {}

  NpyHeader read() {
    constexpr std::uint64_t kVersionEnd = 8;
    const auto start = take(kVersionEnd);
    if (start.size() < kMagic.size() || std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0) {
      throw failed("is not a .npy file; make one in Python with numpy.save");
    }
    if (start.size() < kVersionEnd) throw ends();
    const auto version = std::to_integer<unsigned>(start[kMagic.size()]);
    if (version < 1 || version > 3) {
      throw failed(".npy version " + std::to_string(version) +
                   " is none that deltawire reads (1 to 3); save the array again with numpy.save");
    }
    const std::uint64_t length_bytes = version == 1 ? 2 : 4;
    const auto length_field = take(length_bytes);
    if (length_field.size() < length_bytes) throw ends();
    const std::byte* const at = length_field.data();
    const std::uint64_t length = version == 1 ? load_le<std::uint16_t>(at) : load_le<std::uint32_t>(at);
    const auto text = take(length);
    if (text.size() < length) {
      throw failed("ends within the .npy header: expected " + grouped(length) + " bytes, found " +
                   grouped(text.size()) + "; copy the file again");
    }
    return parse_npy_header({reinterpret_cast<const char*>(text.data()), text.size()});
  }

 private:
  static Failure ends() { return failed("ends within the .npy header; copy the file again"); }

  // Reads `wanted` bytes, or fewer at the end. The length may be false, so memory grows only with bytes read.
  std::vector<std::byte> take(std::uint64_t wanted) {
    constexpr std::uint64_t kStepBytes = std::uint64_t{1} << 16;
    std::vector<std::byte> bytes;
    while (bytes.size() < wanted) {
      const std::uint64_t before = bytes.size();
      bytes.resize(before + std::min(wanted - before, kStepBytes));
      const std::size_t got = value_or_failed(source_.read(MutBytes(bytes).subspan(before)));
      if (before + got == bytes.size()) continue;
      bytes.resize(before + got);
      break;
    }
    return bytes;
  }

  ByteSource& source_;
};

// "float64" for "<f8"; the quoted descr if it has no such name.
std::string numpy_name(const std::string& descr) {
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

// Arrays of which no conversion makes numbers.
bool has_no_numbers(const NpyHeader& header) {
  constexpr std::string_view kKinds = "USaO";
  return header.descr.empty() ||
         (header.descr.size() > 1 && kKinds.find(header.descr[1]) != std::string_view::npos);
}

// REQUIRES: has_no_numbers. The failure's message lacks the file's name.
Failure no_numbers(const NpyHeader& header) {
  if (header.descr.empty()) {
    return failed(
        "is a structured array; save the field that is meant as a file of its own: "
        "array['FIELD'].astype('float32')");
  }
  return failed("holds " + std::string(header.descr[1] == 'O' ? "objects" : "texts") + " (dtype '" +
                header.descr + "'), and deltawire takes numbers");
}

// Nothing if it is not a type that is read.
std::optional<NpyInfo> info_of_type(const std::string& descr) {
  struct Known {
    const char* descr;
    ValueType type;
    bool big_endian;
  };
  // ml_dtypes' bfloat16 is saved as '<V2'; bytes without a meaning are '|V2'.
  constexpr Known kTypes[] = {
      {"<f4", ValueType::kF32, false},  {">f4", ValueType::kF32, true},  {"<f8", ValueType::kF64, false},
      {">f8", ValueType::kF64, true},   {"<f2", ValueType::kF16, false}, {">f2", ValueType::kF16, true},
      {"<V2", ValueType::kBF16, false}, {"<i8", ValueType::kI64, false}, {">i8", ValueType::kI64, true}};
  for (const Known& known : kTypes) {
    if (descr == known.descr) return NpyInfo{{}, known.type, known.big_endian};
  }
  return std::nullopt;
}

Failure unknown_type(const NpyHeader& header, bool of_keys) {
  if (has_no_numbers(header)) return no_numbers(header);
  if (of_keys) {
    return failed("dtype " + numpy_name(header.descr) +
                  ", but deltawire reads keys as int64; convert it in Python with array.astype('int64')");
  }
  if (header.descr == "|V2") {
    return failed(
        "dtype '|V2' is two bytes without a meaning; if they are bfloat16, save "
        "array.view(ml_dtypes.bfloat16)");
  }
  return failed("dtype " + numpy_name(header.descr) +
                ", but deltawire takes float32, float64, float16 and bfloat16; convert it in Python with "
                "array.astype('float32')");
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

}  // namespace

NpyInfo read_npy_info(ByteSource& source, const std::string& name, bool of_keys) {
  return within(name + ": ", [&] {
    NpyHeader header = HeaderSource(source).read();
    auto info = info_of_type(header.descr);
    if (!info || (info->type == ValueType::kI64) != of_keys) throw unknown_type(header, of_keys);
    if (header.shape.size() > kMaxDimensions) {
      throw failed("the array has " + std::to_string(header.shape.size()) +
                   " dimensions, a .dw file at most 8; reshape it");
    }
    const auto count = element_count(header.shape);
    if (!count)
      throw failed("the shape " + shape_text(header.shape) + " has 2^32 elements or more; split the array");
    info->fortran_order = header.fortran_order;
    info->shape = std::move(header.shape);
    info->count = *count;
    return *std::move(info);
  });
}

std::string npy_header(const ArrayInfo& info) {
  const auto descr = [&] {
    switch (info.type) {
      case ValueType::kF64: return "<f8";
      case ValueType::kF16: return "<f2";
      case ValueType::kBF16: return "<V2";
      case ValueType::kI64: return "<i8";
      default: return "<f4";
    }
  };
  return npy_header(descr(), shape_text(info.shape));
}

std::string npy_header(const std::string& descr, const std::string& shape) {
  std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
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
