// Three values, five to a byte: base 3^5 (Lim, Andersen, Kaminsky: 3LC, MLSys 2019, section 3.2), in rows of
// 320 elements. A row of r elements has t = ceil(r / 5) bytes, and byte j holds elements j, j + t, ...,
// j + 4t, the first in the highest place. Digits are 0, 1 or 2 for -1, 0 and +1; pads are 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/kernels/chunk_bytes.h"

namespace deltawire::base3 {

inline constexpr std::uint32_t kRowElements = 320;  // 5 digits a byte, 64 bytes a row
inline constexpr std::uint32_t kDigitsPerByte = 5;
inline constexpr std::uint32_t kRowBytes = kRowElements / kDigitsPerByte;
inline constexpr std::uint32_t kMaxPackedByte = 242;
inline constexpr std::byte kZeroByte{121};  // five zeros

// Bytes of `count` elements.
[[gnu::always_inline]] constexpr std::uint32_t packed_bytes(std::uint32_t count) noexcept {
  return (count + kDigitsPerByte - 1) / kDigitsPerByte;
}

[[gnu::always_inline]] inline void pack_row(const std::uint8_t* digits, std::uint32_t stride,
                                            std::byte* packed) noexcept {
  for (std::uint32_t j = 0; j < stride; ++j) {
    const std::uint32_t value = 81U * digits[j] + 27U * digits[j + stride] + 9U * digits[j + 2 * stride] +
                                3U * digits[j + 3 * stride] + digits[j + 4 * stride];
    packed[j] = static_cast<std::byte>(value);
  }
}

// The five digits of every byte, first element first.
struct DigitTable {
  std::uint8_t digits[kMaxPackedByte + 1][kDigitsPerByte];
};

[[gnu::always_inline]] constexpr DigitTable make_digit_table() noexcept {
  DigitTable table{};
  for (std::uint32_t value = 0; value <= kMaxPackedByte; ++value) {
    std::uint32_t rest = value;
    for (std::uint32_t i = kDigitsPerByte; i-- > 0; rest /= 3) {
      table.digits[value][i] = static_cast<std::uint8_t>(rest % 3);
    }
  }
  return table;
}

namespace faults {

inline constexpr ChunkFault kBadPad = {"a pad digit isn't 1"};
inline constexpr ChunkFault kNonzeroWithoutM = {"a digit isn't 0 although m is 0"};

}  // namespace faults

// Where the `count` elements of a row go.
struct RowTarget {
  float* slot = nullptr;
  std::uint32_t count = 0;
  float value = 0;          // what the digit 2 stands for; 0 stands for its negative
  bool zeros_only = false;  // all digits have to be 1
  bool accumulate = false;  // slot += instead of slot =; a digit of 1 leaves it as it is
};

// REQUIRES: no byte above kMaxPackedByte.
[[gnu::always_inline]] inline Fault unpack_row(const DigitTable& table, const std::byte* row,
                                               const RowTarget& target) noexcept {
  const float values[3] = {-target.value, 0.0F, target.value};
  const std::uint32_t stride = packed_bytes(target.count);
  for (std::uint32_t j = 0; j < stride; ++j) {
    if (row[j] == kZeroByte && target.accumulate) continue;
    if (row[j] != kZeroByte && target.zeros_only) return &faults::kNonzeroWithoutM;
    const std::uint8_t* digits = table.digits[static_cast<std::size_t>(row[j])];
    for (std::uint32_t i = 0; i < kDigitsPerByte; ++i) {
      const std::uint32_t at = j + i * stride;
      const std::uint8_t digit = digits[i];
      if (at >= target.count) {
        if (digit != 1) return &faults::kBadPad;
      } else if (!target.accumulate) {
        target.slot[at] = values[digit];
      } else if (digit != 1) {
        target.slot[at] += values[digit];
      }
    }
  }
  return nullptr;
}

}  // namespace deltawire::base3
