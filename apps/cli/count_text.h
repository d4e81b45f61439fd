// Reads numbers of elements, rows or ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deltawire::cli {

// What bad counts are told.
inline constexpr std::string_view kCountAdvice = "write 23600000, 23.6m, 7b or 2e6";

// "4096", "23.6m", "2e6": digits, perhaps with a point, then k, m, b or t (10^3, 10^6, 10^9, 10^12; g is b)
// in either case, or e and a power of ten. None for all else, and for what is not whole or beyond 64 bits.
std::optional<std::uint64_t> count_of(std::string_view text);

// Makes digits of a count, and leaves all else as it is: for options that also take proportions.
std::string digits_of_count(std::string& text);

}  // namespace deltawire::cli
