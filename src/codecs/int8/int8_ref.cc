#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/int8/int8_ops.h"
#include "codecs/kernels/magnitude.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

namespace {

// Added to a float64 below 2^51 in magnitude it rounds to a whole number, ties to even, and leaves that
// number in the lowest bits, in two's complement.
constexpr double kRoundToWhole = 0x1.8p52;

float code_value(std::byte code) noexcept {
  return static_cast<float>(static_cast<std::int8_t>(code));
}

std::uint32_t max_magnitude(const float* in, const float* residual, std::uint64_t count) {
  return largest_magnitude(in, residual, count);
}

// The quotient is in float64 because there no rounding can make a tie: x / step is k + 1/2, or differs from
// it by at least 2^-25, as x near such a point is a multiple of half the last place of step.
std::byte code_of(float x, float step) noexcept {
  const double whole = static_cast<double>(x) / static_cast<double>(step) + kRoundToWhole;
  return static_cast<std::byte>(bit_cast<std::uint64_t>(whole) & 0xFF);
}

void encode(const float* in, float* residual, std::uint64_t count, float step, std::byte* payload) {
  // Where step is 0 all values are: 1 gives the code 0 without 0/0.
  const float divisor = step > 0 ? step : 1.0F;
  if (residual == nullptr) {
    for (std::uint64_t i = 0; i < count; ++i) payload[i] = code_of(in[i], divisor);
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const float x = in[i] + residual[i];
    payload[i] = code_of(x, divisor);
    residual[i] = x - code_value(payload[i]) * step;
  }
}

std::uint64_t find_bad_code(const std::byte* payload, std::uint64_t count, bool zeros_only) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (payload[i] == kUnusedCode || (zeros_only && payload[i] != std::byte{0})) return i;
  }
  return count;
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, float step, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) slot[i] = scale * (code_value(payload[i]) * step);
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, float step, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) slot[i] += scale * (code_value(payload[i]) * step);
}

}  // namespace

float step_for(float largest) noexcept {
  const float nearest = largest / static_cast<float>(kLargestCode);
  auto bits = bit_cast<std::uint32_t>(nearest);
  // Exact: 24 bits times 7 fit a float64.
  if (static_cast<double>(nearest) * kLargestCode < static_cast<double>(largest)) ++bits;
  return bit_cast<float>(bits < kLargestStep ? bits : kLargestStep);
}

extern constexpr Kernels kKernels = {max_magnitude, encode, find_bad_code, decode_overwrite,
                                     decode_accumulate};

}  // namespace deltawire::int8::DELTAWIRE_TARGET
