#include "cli/arrays/array_reader.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace deltawire::cli {
namespace {

double widen_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int fraction = bits & 0x3FF;
  double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  if (exponent == 0x1F) magnitude = fraction == 0 ? HUGE_VAL : std::nan("");
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class Stored, class Widen>
void widen_all(const void* values, std::uint64_t count, double* out, Widen widen) {
  const auto* bytes = static_cast<const std::byte*>(values);
  for (std::uint64_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, bytes + i * sizeof stored, sizeof stored);
    out[i] = widen(stored);
  }
}

}  // namespace

std::uint64_t value_bytes(ValueType type) noexcept {
  switch (type) {
    case ValueType::kF32: return 4;
    case ValueType::kF64: return 8;
    default: return 2;
  }
}

std::string_view value_name(ValueType type) noexcept {
  switch (type) {
    case ValueType::kF32: return "float32";
    case ValueType::kF64: return "float64";
    case ValueType::kF16: return "float16";
    default: return "bfloat16";
  }
}

ValueType value_type(DType dtype) noexcept {
  if (dtype == DType::kF16) return ValueType::kF16;
  return dtype == DType::kBF16 ? ValueType::kBF16 : ValueType::kF32;
}

void widen_values(const void* values, ValueType type, std::uint64_t count, double* out) {
  switch (type) {
    case ValueType::kF32: return widen_all<float>(values, count, out, [](float v) { return double{v}; });
    case ValueType::kF64: return widen_all<double>(values, count, out, [](double v) { return v; });
    case ValueType::kF16: return widen_all<std::uint16_t>(values, count, out, widen_half);
    case ValueType::kBF16:
      return widen_all<std::uint16_t>(values, count, out, [](std::uint16_t bits) {
        return double{std::bit_cast<float>(std::uint32_t{bits} << 16)};
      });
  }
}

std::uint64_t narrow_values(const double* values, std::uint64_t count, float* out) {
  constexpr double kLargest = 3.4028234663852886e38;  // beyond it a conversion is undefined
  for (std::uint64_t i = 0; i < count; ++i) {
    const double value = values[i];
    if (std::isfinite(value) && std::abs(value) > kLargest) return i;
    out[i] = static_cast<float>(value);
    if (double{out[i]} != value && !std::isnan(value)) return i;
  }
  return count;
}

}  // namespace deltawire::cli
