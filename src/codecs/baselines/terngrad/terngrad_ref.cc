#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "codecs/baselines/terngrad/terngrad_ops.h"

namespace deltawire::terngrad::DELTAWIRE_TARGET {

namespace {

constexpr base3::DigitTable kDigits = base3::make_digit_table();

Spread sum_up(const Addends& x) {
  return spread_of(x);
}

// +1, 0 or -1. The product takes the place of a quotient: u < |x| / m.
int drawn(float x, float m, double u) noexcept {
  const float magnitude = bit_cast<float>(magnitude_bits(x));
  const float held = magnitude < m ? magnitude : m;
  if (!(u * static_cast<double>(m) < static_cast<double>(held))) return 0;
  return x < 0 ? -1 : 1;
}

void encode(const Addends& x, const Draws& draws, float m, std::byte* packed) {
  for (std::uint64_t at = 0; at < x.count; at += base3::kRowElements) {
    const std::uint64_t left = x.count - at;
    const auto count = static_cast<std::uint32_t>(left < base3::kRowElements ? left : base3::kRowElements);
    std::uint8_t digits[base3::kRowElements];
    std::memset(digits, 1, sizeof digits);  // pads are zeros
    for (std::uint32_t i = 0; i < count; ++i) {
      const float sum = sum_at(x, at + i);
      const int digit = drawn(sum, m, uniform_at(draws, at + i));
      digits[i] = static_cast<std::uint8_t>(1 + digit);
      if (x.left != nullptr) x.left[at + i] = sum - static_cast<float>(digit) * m;
    }
    base3::pack_row(digits, base3::packed_bytes(count), packed + at / base3::kDigitsPerByte);
  }
}

Fault decode_row(const std::byte* row, const base3::RowTarget& target) noexcept {
  for (std::uint32_t j = 0; j < base3::packed_bytes(target.count); ++j) {
    if (static_cast<std::uint32_t>(row[j]) > base3::kMaxPackedByte) return Fault::kBadByte;
  }
  switch (base3::unpack_row(kDigits, row, target)) {
    case base3::RowFault::kPad: return Fault::kBadPad;
    case base3::RowFault::kNonzero: return Fault::kNonzeroWithoutM;
    default: return Fault::kNone;
  }
}

// Row by row; without a slot into memory that nobody reads.
Fault decode(const std::byte* packed, const base3::RowTarget& target) {
  float unread[base3::kRowElements];
  for (std::uint32_t at = 0; at < target.count; at += base3::kRowElements) {
    const std::uint32_t left = target.count - at;
    base3::RowTarget row = target;
    row.slot = target.slot != nullptr ? target.slot + at : unread;
    row.count = left < base3::kRowElements ? left : base3::kRowElements;
    const Fault fault = decode_row(packed + at / base3::kDigitsPerByte, row);
    if (fault != Fault::kNone) return fault;
  }
  return Fault::kNone;
}

Fault check(const std::byte* packed, std::uint32_t count, bool zeros_only) {
  return decode(packed, {nullptr, count, 0, zeros_only, false});
}

}  // namespace

extern constexpr Kernels kKernels = {sum_up, encode, decode, check};

}  // namespace deltawire::terngrad::DELTAWIRE_TARGET
