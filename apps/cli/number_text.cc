#include "cli/number_text.h"

#include <algorithm>
#include <cstdio>

#include "base/spec_text.h"

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
  if (number < 1) return significant(number);
  return with_decimals(number, number >= 1000 ? 0 : number >= 100 ? 1 : number >= 10 ? 2 : 3);
}

std::string significant(double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*g", digits, number);
  return text;
}

std::string with_decimals(double number, int decimals) {
  char text[64];
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

std::string ratio_text(const FileSize& size) {
  if (size.count == 0) return "no values";
  return times_smaller_text(size.times_smaller()) + ", " + rounded(size.bits_per_value()) + " bits per value";
}

namespace {

constexpr std::size_t kMostZeros = 20;  // 10^20 is beyond 64 bits

// The power of ten that a count ends with; none for another end.
std::optional<std::size_t> zeros_of(std::string_view end) {
  if (end.empty()) return 0;
  const char unit = static_cast<char>(end.front() | 0x20);
  if (end.size() == 1) {
    constexpr std::string_view kUnits = "kmbt";
    const std::size_t power = kUnits.find(unit == 'g' ? 'b' : unit);
    if (power == std::string_view::npos) return std::nullopt;
    return 3 * (power + 1);
  }
  const auto zeros = parse_number<std::size_t>(end.substr(1));
  return unit == 'e' && zeros ? std::optional(std::min(*zeros, kMostZeros)) : std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> count_of(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const auto digits_from = [&](std::size_t begin) {
    return text.substr(begin, text.find_first_not_of(kDigits, begin) - begin);
  };
  std::string digits(digits_from(0));
  std::size_t at = digits.size();
  std::size_t decimals = 0;
  if (at < text.size() && text[at] == '.') {
    const std::string_view after = digits_from(at + 1);
    decimals = after.size();
    if (digits.empty() || decimals == 0) return std::nullopt;
    digits += after;
    at += 1 + decimals;
  }
  const auto zeros = zeros_of(text.substr(at));
  if (digits.empty() || !zeros || decimals > *zeros) return std::nullopt;
  digits.append(*zeros - decimals, '0');
  return parse_number<std::uint64_t>(digits);
}

std::string digits_of_count(std::string& text) {
  if (const auto count = count_of(text)) text = std::to_string(*count);
  return {};
}

}  // namespace deltawire::cli
