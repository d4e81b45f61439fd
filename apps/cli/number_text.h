// Formats numbers for people.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace deltawire::cli {

// "1,234,567"
std::string grouped(std::uint64_t number);

// "19.97", "7477", "0.00359": three or four significant digits.
std::string rounded(double number);

// "2.5 times smaller", or "1.4 times larger" for 1/1.4.
std::string times_smaller_text(double times);

// "(3, 4, 5)", "(7,)", "()": as NumPy writes a shape.
std::string shape_text(std::span<const std::uint64_t> shape);

// A tensor and its .dw file.
struct FileSize {
  std::uint64_t count = 0;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t file_bytes = 0;
  double times_smaller() const noexcept;
  double bits_per_value() const noexcept;  // REQUIRES: count > 0
};

// "19.97 times smaller, 1.602 bits per value"; "no values" if there are none.
std::string ratio_text(const FileSize& size);

}  // namespace deltawire::cli
