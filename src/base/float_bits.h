// The bits of a float32.
#pragma once

#include <cstdint>

namespace deltawire {

inline constexpr std::uint32_t kSignBit = 0x80000000;
inline constexpr std::uint32_t kMagnitudeMask = 0x7FFFFFFF;
inline constexpr std::uint32_t kInfinityBits = 0x7F800000;  // this magnitude is Inf, larger ones are NaN

}  // namespace deltawire
