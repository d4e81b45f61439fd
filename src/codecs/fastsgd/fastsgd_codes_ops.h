// How the reference reads a chunk's values.
#pragma once

#include <cstdint>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Reads values, scaled and with their signs, and keeps what shows whether their codes are as the head states.
class CodeReader {
 public:
  CodeReader(const DecodeRules& rules, const Head& head, float scale, const BitWindow& values) noexcept
      : codes_(values), code_bits_(head.code_bits) {
    const std::uint32_t codes = std::uint32_t{1} << head.code_bits;
    for (; allowed_ < codes && head.base + allowed_ <= rules.last_code; ++allowed_) {
      const float value = code_value(rules.sum, rules.powers, head.base + allowed_);
      if (bit_cast<std::uint32_t>(value) == 0) break;
      of_code_[allowed_] = value * scale;
    }
  }

  // False if the next code isn't allowed.
  [[gnu::always_inline]] bool next(float& value) noexcept {
    const std::uint64_t word = codes_.peek();
    const auto code = static_cast<std::uint32_t>(word & ((1U << code_bits_) - 1));
    if (code >= allowed_) return false;
    codes_.position += code_bits_ + 1;
    lowest_ = code < lowest_ ? code : lowest_;
    highest_ = code > highest_ ? code : highest_;
    const auto sign = static_cast<std::uint32_t>(word >> code_bits_ & 1) << 31;
    value = bit_cast<float>(bit_cast<std::uint32_t>(of_code_[code]) ^ sign);
    return true;
  }

  // Whether the codes that were read begin at the base, and the largest needs all bits.
  [[gnu::always_inline]] bool fill_range() const noexcept {
    return lowest_ == 0 && bit_width(highest_) == code_bits_;
  }

  [[gnu::always_inline]] bool at_clean_end() const noexcept { return codes_.at_clean_end(); }

 private:
  float of_code_[kCodes];
  std::uint32_t allowed_ = 0;
  BitWindow codes_;
  unsigned code_bits_;
  std::uint32_t lowest_ = kMaxCode;
  std::uint32_t highest_ = 0;
};

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
