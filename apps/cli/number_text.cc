#include "cli/number_text.h"

#include <cstdio>

namespace deltawire::cli {

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

std::string rounded(double number) {
  char text[64];
  if (number < 1) {
    std::snprintf(text, sizeof text, "%.3g", number);
    return text;
  }
  const int decimals = number >= 1000 ? 0 : number >= 100 ? 1 : number >= 10 ? 2 : 3;
  std::snprintf(text, sizeof text, "%.*f", decimals, number);
  return text;
}

std::string times_smaller_text(double times) {
  return times < 1 ? rounded(1 / times) + " times larger" : rounded(times) + " times smaller";
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

double FileSize::times_smaller() const noexcept {
  return static_cast<double>(tensor_bytes) / static_cast<double>(file_bytes);
}

double FileSize::bits_per_value() const noexcept {
  return static_cast<double>(file_bytes) * 8 / static_cast<double>(count);
}

std::string ratio_text(const FileSize& size) {
  if (size.count == 0) return "no values";
  return times_smaller_text(size.times_smaller()) + ", " + rounded(size.bits_per_value()) + " bits per value";
}

}  // namespace deltawire::cli
