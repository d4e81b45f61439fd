// How the values of a sparse codec are coded: as they are, rounded to bfloat16, as multiples of a step, or by
// their bins (codecs/sparse/sparse_bins.h). What is below is for codes of whole bytes, all but the last.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/float16.h"
#include "base/float_bits.h"
#include "base/little_endian.h"
#include "codecs/kernels/steps.h"

namespace deltawire {

enum class ValueFormat : std::uint8_t { kFp32, kBf16, kInt8, kBins };

struct ValueCode {
  ValueFormat format = ValueFormat::kFp32;
  float step = 0;  // of int8; 0 for the other formats
};

[[gnu::always_inline]] constexpr std::uint32_t value_bytes(ValueFormat format) noexcept {
  return format == ValueFormat::kFp32 ? 4 : format == ValueFormat::kBf16 ? 2 : 1;
}

inline constexpr std::uint16_t kBf16Magnitude = 0x7FFF;
inline constexpr std::uint16_t kLargestBf16 = 0x7F7F;

// The nearest bfloat16, ties to even, but never Inf. REQUIRES: a finite value.
[[gnu::always_inline]] inline std::uint16_t finite_bf16_of(float value) noexcept {
  const std::uint16_t rounded = bf16_of(bit_cast<std::uint32_t>(value));
  if ((rounded & kBf16Magnitude) <= kLargestBf16) return rounded;
  return static_cast<std::uint16_t>((rounded & ~kBf16Magnitude) | kLargestBf16);
}

// The value behind a code.
[[gnu::always_inline]] inline float value_of(const std::byte* code, const ValueCode& rules) noexcept {
  switch (rules.format) {
    case ValueFormat::kFp32: return bit_cast<float>(load_le<std::uint32_t>(code));
    case ValueFormat::kBf16: return bit_cast<float>(bits_of_bf16(load_le<std::uint16_t>(code)));
    default: return int8::code_value(*code) * rules.step;
  }
}

// Whether an encoder may have written this code: finite; of int8 no -128, and where the step is 0 none but 0.
[[gnu::always_inline]] inline bool is_value_code(const std::byte* code, const ValueCode& rules) noexcept {
  if (rules.format == ValueFormat::kInt8) {
    return *code != int8::kUnusedCode && (rules.step > 0 || *code == std::byte{0});
  }
  return (bit_cast<std::uint32_t>(value_of(code, rules)) & kMagnitudeMask) < kInfinityBits;
}

// REQUIRES: a finite value; of int8 none that the step takes beyond 127.
[[gnu::always_inline]] inline void put_value(float value, const ValueCode& rules, std::byte* code) noexcept {
  switch (rules.format) {
    case ValueFormat::kFp32: store_le(code, bit_cast<std::uint32_t>(value)); return;
    case ValueFormat::kBf16: store_le(code, finite_bf16_of(value)); return;
    default: *code = int8::code_of(value, rules.step > 0 ? rules.step : 1.0F);
  }
}

}  // namespace deltawire
