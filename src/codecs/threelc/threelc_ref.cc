// Reference kernels: the largest magnitude, and encoding. Decoding is in threelc_decode_ref.cc.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/kernels/magnitude.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kRowStride = kRowElements / kDigitsPerByte;

std::uint32_t max_magnitude(const float* in, const float* residual, std::uint64_t count) {
  return largest_magnitude(in, residual, count);
}

// 0, 1 or 2 for -1, 0 or +1.
std::uint8_t digit_of(float x, float half) noexcept {
  return static_cast<std::uint8_t>(1 + static_cast<int>(x >= half) - static_cast<int>(x <= -half));
}

// Digits of one row, and its new residual. x - m and x + m are exact (m/2 <= |x| <= m, Sterbenz), so nothing
// is lost between what is sent and what is kept.
void quantize_row(const QuantizeInput& row, std::uint8_t* digits) noexcept {
  const float m = row.scale.m;
  const float half = row.scale.half;
  if (row.residual == nullptr) {
    for (std::uint32_t i = 0; i < row.count; ++i) digits[i] = digit_of(row.in[i], half);
    return;
  }
  for (std::uint32_t i = 0; i < row.count; ++i) {
    const float x = row.in[i] + row.residual[i];
    digits[i] = digit_of(x, half);
    row.residual[i] = x >= half ? x - m : (x <= -half ? x + m : x);
  }
}

// Byte j holds elements j, j + stride, ..., j + 4 * stride, the first in the highest place.
void pack_row(const std::uint8_t* digits, std::uint32_t stride, std::byte* packed) noexcept {
  for (std::uint32_t j = 0; j < stride; ++j) {
    const std::uint32_t value = 81U * digits[j] + 27U * digits[j + stride] + 9U * digits[j + 2 * stride] +
                                3U * digits[j + 3 * stride] + digits[j + 4 * stride];
    packed[j] = static_cast<std::byte>(value);
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

std::uint32_t quantize(const QuantizeInput& input, std::byte* packed, const DigitMaps& maps) {
  std::uint32_t nonzeros = 0;
  for (std::uint32_t at = 0; at < input.count; at += kRowElements) {
    const std::uint32_t left = input.count - at;
    const std::uint32_t count = left < kRowElements ? left : kRowElements;
    const std::uint32_t stride = left < kRowElements ? packed_bytes(left) : kRowStride;
    std::uint8_t digits[kRowElements];
    std::memset(digits, 1, sizeof digits);  // pads are zeros
    quantize_row(
        {input.in + at, input.residual != nullptr ? input.residual + at : nullptr, count, input.scale},
        digits);
    pack_row(digits, stride, packed + at / kDigitsPerByte);
    if (maps.nonzero != nullptr) {
      nonzeros += map_row(digits, count, {maps.nonzero + at / 8, maps.negative + at / 8});
    } else {
      for (std::uint32_t i = 0; i < count; ++i) nonzeros += digits[i] != 1 ? 1U : 0U;
    }
  }
  return nonzeros;
}

// The run of zero bytes that begins at `at`.
std::uint32_t zero_run(const std::byte* packed, std::uint32_t at, std::uint32_t bytes) noexcept {
  std::uint32_t end = at;
  while (end < bytes && packed[end] == kZeroByte) ++end;
  return end - at;
}

std::uint32_t zero_run_bytes(const std::byte* packed, std::uint32_t bytes) {
  std::uint32_t total = 0;
  for (std::uint32_t at = 0; at < bytes;) {
    const std::uint32_t run = zero_run(packed, at, bytes);
    total += run > 0 ? (run + kLongestRun - 1) / kLongestRun : 1;
    at += run > 0 ? run : 1;
  }
  return total;
}

std::uint32_t zero_runs(std::byte* packed, std::uint32_t bytes) {
  std::uint32_t written = 0;
  for (std::uint32_t at = 0; at < bytes;) {
    const std::uint32_t run = zero_run(packed, at, bytes);
    if (run == 0) {
      packed[written++] = packed[at++];
      continue;
    }
    at += run;
    for (std::uint32_t left = run; left > 0;) {
      const std::uint32_t part = left < kLongestRun ? left : kLongestRun;
      packed[written++] = part == 1 ? kZeroByte : static_cast<std::byte>(kFirstRun + part - 2);
      left -= part;
    }
  }
  return written;
}

// Calls visit(gap, negative) for each digit that isn't 0, in the order of the elements.
template <class Visit>
void for_each_nonzero(const DigitMaps& maps, std::uint32_t count, Visit visit) {
  std::uint32_t next = 0;  // the position after the last one visited
  for (std::uint32_t at = 0; at < count; at += 64) {
    auto left = load_le<std::uint64_t>(maps.nonzero + at / 8);
    const auto negative = load_le<std::uint64_t>(maps.negative + at / 8);
    for (; left != 0; left &= left - 1) {
      const auto bit = countr_zero(left);
      visit(at + bit - next, (negative >> bit & 1) != 0);
      next = at + bit + 1;
    }
  }
}

std::uint64_t rice_bits(const DigitMaps& maps, std::uint32_t count, const RiceCode& code) {
  std::uint64_t bits = 0;
  for_each_nonzero(maps, count, [&](std::uint32_t gap, bool) {
    bits += rice_bits_of(gap, code.parameter, kRiceEscapeBits).bits + 1;
  });
  return bits;
}

std::uint32_t rice(const DigitMaps& maps, std::uint32_t count, const RiceCode& code, std::byte* out,
                   std::uint32_t out_bytes) {
  out[0] = static_cast<std::byte>(code.parameter);
  store_le(out + 1, static_cast<std::uint16_t>(code.nonzeros));
  BitWriter writer(out + kRiceHeaderBytes, out_bytes - kRiceHeaderBytes);
  for_each_nonzero(maps, count, [&](std::uint32_t gap, bool negative) {
    const RiceBits bits = rice_bits_of(gap, code.parameter, kRiceEscapeBits);
    writer.put(bits.value, bits.bits);
    writer.put(negative ? 1 : 0, 1);
  });
  return kRiceHeaderBytes + static_cast<std::uint32_t>(writer.finish());
}

}  // namespace

extern constexpr Kernels kKernels = {max_magnitude, quantize, zero_run_bytes, zero_runs,
                                     rice_bits,     rice,     decode_chunk};

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
