// Fast parsing of numbers.
#pragma once

#include <cstdint>

namespace deltawire::linear {

enum class Scan : std::uint8_t { kNumber, kNoNumber, kNotFinite };

// Parses a decimal number, with optional sign, fraction and exponent, at the front of [at, end), and moves
// `at` behind it. `value` is the nearest float32, ties to even, and 0 if the number is too small. kNotFinite:
// too large, or one of the words nan, inf and infinity. `at` moves only for kNumber.
Scan scan_float(const char*& at, const char* end, float& value) noexcept;

// Parses digits only. kNotFinite: beyond 2^63.
Scan scan_index(const char*& at, const char* end, std::uint64_t& value) noexcept;

}  // namespace deltawire::linear
