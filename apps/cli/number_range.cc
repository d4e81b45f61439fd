#include <limits>
#include <string>

#include "cli/commands.h"
#include "cli/number_text.h"

namespace deltawire::cli {

namespace {

constexpr double kSmallestPositive = std::numeric_limits<double>::min();
constexpr double kLargestDouble = std::numeric_limits<double>::max();

std::string range_text(double low, double high) {
  if (low == kSmallestPositive) return "above 0";
  return significant(low, 15) + (high == kLargestDouble ? " or more" : " to " + significant(high, 15));
}

}  // namespace

CLI::Validator number_range(double low, double high) {
  const auto check = [low, high](std::string& text) -> std::string {
    double number = 0;
    // Written so that NaN, which compares false with everything, is refused.
    if (CLI::detail::lexical_cast(text, number) && number >= low && number <= high) return {};
    return "Value " + text + " must be " + range_text(low, high);
  };
  return {check, ""};
}

CLI::Validator count_range(std::uint64_t least, std::uint64_t most) {
  const auto change = [least, most](std::string& text) -> std::string {
    const auto count = count_of(text);
    if (!count) return "'" + text + "' is no count: " + std::string(kCountAdvice);
    const bool is_open = most == std::numeric_limits<std::uint64_t>::max();
    if (*count < least || *count > most) {
      return "Value " + text + " must be " + grouped(least) + (is_open ? " or more" : " to " + grouped(most));
    }
    text = std::to_string(*count);
    return {};
  };
  return {change, ""};
}

CLI::Validator number_from_0() {
  return number_range(0, kLargestDouble);
}

CLI::Validator positive_number() {
  return number_range(kSmallestPositive, kLargestDouble);
}

void add_min_elements_option(CLI::App& command, std::uint64_t& min_elements) {
  add_value(command, "--min-elements N", min_elements,
            "Send tensors with fewer values as float32, as in training")
      ->transform(count_range(0));
}

}  // namespace deltawire::cli
