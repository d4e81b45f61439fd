// Numbers as people read and write them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace deltawire::cli {

// "1,234,567"
std::string grouped(std::uint64_t number);

// "19.97", "7477", "0.00359": three or four significant digits.
std::string rounded(double number);

// With so many significant digits, and with so many decimals.
std::string significant(double number, int digits = 3);
std::string with_decimals(double number, int decimals);

// "2.5 times smaller", or "1.4 times larger" for 1/1.4.
std::string times_smaller_text(double times);

// "(3, 4, 5)", "(7,)", "()": as NumPy writes a shape.
std::string shape_text(std::span<const std::uint64_t> shape);

// A tensor and its .dw file.
struct FileSize {
  std::uint64_t count = 0;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t file_bytes = 0;
  double times_smaller() const noexcept {
    return static_cast<double>(tensor_bytes) / static_cast<double>(file_bytes);
  }
  // REQUIRES: count > 0.
  double bits_per_value() const noexcept {
    return static_cast<double>(file_bytes) * 8 / static_cast<double>(count);
  }
};

// "19.97 times smaller, 1.602 bits per value"; "no values" if there are none.
std::string ratio_text(const FileSize& size);

// What bad counts are told.
inline constexpr std::string_view kCountAdvice = "write 23600000, 23.6m, 7b or 2e6";

// "4096", "23.6m", "2e6": digits, perhaps with a point, then k, m, b or t (10^3, 10^6, 10^9, 10^12; g is b)
// in either case, or e and a power of ten. None for all else, and for what is not whole or beyond 64 bits.
std::optional<std::uint64_t> count_of(std::string_view text);

// Makes digits of a count, and leaves all else as it is: for options that also take proportions.
std::string digits_of_count(std::string& text);

}  // namespace deltawire::cli
