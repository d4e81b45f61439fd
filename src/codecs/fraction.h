// How many elements a fraction of them is.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace deltawire {

inline constexpr std::uint64_t kMaxFractionElements = 0xFFFFFFFF;

// fraction * count rounded to the nearest integer, halves up, at least 1 and at most count. In integers, as
// sizes() must say the same under every rounding mode. REQUIRES: 2^-20 <= fraction < 1, 1 <= count <=
// kMaxFractionElements.
inline std::uint64_t kept_of(float fraction, std::uint64_t count) noexcept {
  constexpr unsigned kMantissaBits = 23;
  constexpr unsigned kBias = 127;
  const auto bits = std::bit_cast<std::uint32_t>(fraction);
  const std::uint64_t mantissa = (bits & ((1U << kMantissaBits) - 1)) | 1U << kMantissaBits;
  const unsigned shift = kBias + kMantissaBits - (bits >> kMantissaBits);  // mantissa / 2^shift; 24 to 43
  const std::uint64_t rounded = (mantissa * count + (std::uint64_t{1} << (shift - 1))) >> shift;
  return std::min(std::max<std::uint64_t>(rounded, 1), count);
}

}  // namespace deltawire
