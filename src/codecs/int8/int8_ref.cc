#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/int8/int8_ops.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

float step_for(float largest) noexcept {
  const float nearest = largest / static_cast<float>(kLargestCode);
  auto bits = bit_cast<std::uint32_t>(nearest);
  // Exact: 24 bits times 7 fit a float64.
  if (static_cast<double>(nearest) * kLargestCode < static_cast<double>(largest)) ++bits;
  return bit_cast<float>(bits < kLargestStep ? bits : kLargestStep);
}

extern constexpr Kernels kKernels = {sum_up, encode, find_bad_code, decode_overwrite, decode_accumulate};

}  // namespace deltawire::int8::DELTAWIRE_TARGET
