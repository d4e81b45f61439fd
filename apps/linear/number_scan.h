// Numbers out of text, at the speed of reading it.
#pragma once

#include <cstdint>

namespace deltawire::linear {

enum class Scan : std::uint8_t { kNumber, kNoNumber, kNotFinite };

// Reads a decimal number, with a sign, a fraction and an exponent where it has them, off [at, end), and moves
// `at` behind it. `value` is the float32 nearest to the number, ties to even; 0 for one too small, kNotFinite
// for one too large and for the words nan, inf and infinity. `at` stays where it is unless it is kNumber.
Scan scan_float(const char*& at, const char* end, float& value) noexcept;

// Digits alone. kNotFinite: beyond 2^63.
Scan scan_index(const char*& at, const char* end, std::uint64_t& value) noexcept;

}  // namespace deltawire::linear
