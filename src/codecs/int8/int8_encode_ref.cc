#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/int8/int8_ops.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

namespace {

// Added to a float64 below 2^51 in magnitude it rounds to a whole number, ties to even, and leaves that
// number in the lowest bits, in two's complement.
constexpr double kRoundToWhole = 0x1.8p52;

// The quotient is in float64 because there no rounding can make a tie: x / step is k + 1/2, or differs from
// it by at least 2^-25, as x near such a point is a multiple of half the last place of step.
std::byte code_of(float x, float step) noexcept {
  const double whole = static_cast<double>(x) / static_cast<double>(step) + kRoundToWhole;
  return static_cast<std::byte>(bit_cast<std::uint64_t>(whole) & 0xFF);
}

}  // namespace

std::uint32_t sum_up(const Addends& x) {
  return add_up(x);
}

void encode(const Addends& x, float step, std::byte* payload) {
  // Where step is 0 all values are: 1 gives the code 0 without 0/0.
  const float divisor = step > 0 ? step : 1.0F;
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    payload[i] = code_of(sum, divisor);
    if (x.left != nullptr) x.left[i] = sum - code_value(payload[i]) * step;
  }
}

}  // namespace deltawire::int8::DELTAWIRE_TARGET
