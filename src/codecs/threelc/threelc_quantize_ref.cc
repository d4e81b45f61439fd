// Reference kernels: the largest magnitude, and quantization.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/kernels/magnitude.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

// Digits of one row (0, 1 or 2 for -1, 0 or +1), and its new residual. What is subtracted is m, 0 or -m, and
// x - m and x + m are exact (m/2 <= |x| <= m, Sterbenz), so nothing is lost between what is sent and what is
// kept.
void quantize_row(const QuantizeInput& row, std::uint8_t* digits) noexcept {
  const float m = row.scale.m;
  const float half = row.scale.half;
  for (std::uint32_t i = 0; i < row.count; ++i) {
    const float x = row.residual != nullptr ? row.in[i] + row.residual[i] : row.in[i];
    const int q = static_cast<int>(x >= half) - static_cast<int>(x <= -half);
    digits[i] = static_cast<std::uint8_t>(1 + q);
    if (row.left != nullptr) row.left[i] = x - static_cast<float>(q) * m;
  }
}

// Bit i of the result is the lowest bit of byte i: the product moves each to the top byte, and no two meet.
std::uint64_t gather_low_bits(std::uint64_t bytes) noexcept {
  return (bytes & 0x0101010101010101U) * 0x0102040810204080U >> 56;
}

// Adds one word of 64 digits to both maps; returns how many aren't 0.
std::uint32_t map_word(const std::uint8_t* digits, std::byte* nonzero, std::byte* negative) noexcept {
  std::uint64_t nonzero_word = 0;
  std::uint64_t negative_word = 0;
  for (unsigned group = 0; group < 8; ++group) {
    const auto eight = load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(digits) + group * 8);
    nonzero_word |= gather_low_bits(~eight) << (group * 8);                  // digits 0 and 2 are even
    negative_word |= gather_low_bits(~(eight | eight >> 1)) << (group * 8);  // digit 0
  }
  store_le(nonzero, nonzero_word);
  store_le(negative, negative_word);
  return popcount(nonzero_word);
}

std::uint32_t map_row(const std::uint8_t* digits, std::uint32_t count, const DigitMaps& maps) noexcept {
  std::uint32_t nonzeros = 0;
  for (std::uint32_t i = 0; i < count; i += 64) {
    nonzeros += map_word(digits + i, maps.nonzero + i / 8, maps.negative + i / 8);
  }
  return nonzeros;
}

void count_zeros(const std::byte* packed, std::uint32_t bytes, Quantized& quantized) noexcept {
  bool in_run = false;
  for (std::uint32_t i = 0; i < bytes; ++i) {
    const bool zero = packed[i] == kZeroByte;
    quantized.zero_bytes += zero ? 1U : 0U;
    quantized.zero_runs += zero && !in_run ? 1U : 0U;
    in_run = zero;
  }
}

}  // namespace

std::uint32_t largest(const Addends& addends) {
  if (addends.sum == nullptr) return largest_magnitude(addends.in, addends.residual, addends.count);
  for (std::uint64_t i = 0; i < addends.count; ++i) addends.sum[i] = addends.in[i] + addends.residual[i];
  return largest_magnitude(addends.sum, nullptr, addends.count);
}

Quantized quantize(const QuantizeInput& input, std::byte* packed, const DigitMaps& maps) {
  Quantized quantized;
  for (std::uint32_t at = 0; at < input.count; at += kRowElements) {
    const std::uint32_t left = input.count - at;
    const std::uint32_t count = left < kRowElements ? left : kRowElements;
    const std::uint32_t stride = left < kRowElements ? packed_bytes(left) : kRowBytes;
    std::uint8_t digits[kRowElements];
    std::memset(digits, 1, sizeof digits);  // pads are zeros
    quantize_row(part_of(input, at, count), digits);
    base3::pack_row(digits, stride, packed + at / kDigitsPerByte);
    if (maps.nonzero != nullptr) {
      quantized.nonzeros += map_row(digits, count, {maps.nonzero + at / 8, maps.negative + at / 8});
    }
  }
  count_zeros(packed, packed_bytes(input.count), quantized);
  return quantized;
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
