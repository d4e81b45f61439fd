// Values by a look into their table each. Eight numbers of a width are as many bytes.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <arm_neon.h>

#include "base/bits.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/fastsgd/fastsgd_values_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kTogether = 8;
constexpr std::uint64_t kPeekBytes = 16;
constexpr std::uint64_t kMostBytes = std::uint64_t{kTile} * (kMaxCodeBits + 1) / 8;

// Where eight numbers of a width lie in their bytes, for two vectors of words.
struct Places {
  uint8x16_t bytes[2];
  int32x4_t down[2];

  [[gnu::always_inline]] explicit Places(unsigned bits) noexcept {
    alignas(16) std::uint8_t at[2 * 16];
    alignas(16) std::int32_t shift[kTogether];
    for (unsigned i = 0; i < kTogether; ++i) {
      for (unsigned k = 0; k < 4; ++k) at[4 * i + k] = static_cast<std::uint8_t>(i * bits / 8 + k);
      shift[i] = -static_cast<std::int32_t>(i * bits % 8);
    }
    for (unsigned half = 0; half < 2; ++half) {
      bytes[half] = vld1q_u8(at + 16 * half);
      down[half] = vld1q_s32(shift + 4 * half);
    }
  }

  [[gnu::always_inline]] uint16x8_t numbers_at(const std::byte* from) const noexcept {
    const uint8x16_t packed = vld1q_u8(reinterpret_cast<const std::uint8_t*>(from));
    uint16x8_t words[2];
    for (unsigned half = 0; half < 2; ++half) {
      const uint32x4_t word = vreinterpretq_u32_u8(vqtbl1q_u8(packed, bytes[half]));
      words[half] = vreinterpretq_u16_u32(vshlq_u32(word, down[half]));
    }
    return vuzp1q_u16(words[0], words[1]);
  }
};

}  // namespace

void open_values(ValueStream& values, const DecodeRules& rules, const Head& head, float scale) {
  fill_values(values, rules, head, scale);
}

void read_values(ValueStream& values, std::uint32_t count, float* out) {
  const unsigned bits = values.code_bits + 1;
  const BitWindow& stream = values.stream;
  const std::uint32_t whole = (count + kTogether - 1) / kTogether * kTogether;
  const std::uint64_t first = stream.position / 8;
  const std::uint64_t bytes = std::uint64_t{whole / kTogether} * bits + kPeekBytes;
  std::byte copy[kMostBytes + kPeekBytes];
  const std::byte* from = stream.at + first;
  if (first + bytes > stream.bytes) {
    std::memset(copy, 0, bytes);
    if (first < stream.bytes)
      std::memcpy(copy, from, stream.bytes - first < bytes ? stream.bytes - first : bytes);
    from = copy;
  }
  const Places places(bits);
  const uint16x8_t of_number = vdupq_n_u16(static_cast<std::uint16_t>((1U << bits) - 1));
  const uint16x8_t of_code = vdupq_n_u16(static_cast<std::uint16_t>((1U << values.code_bits) - 1));
  uint16x8_t lowest = of_code;
  uint16x8_t highest = vdupq_n_u16(0);
  alignas(16) std::uint16_t numbers[kTile + kTogether];
  std::uint32_t i = 0;
  for (; i + kTogether <= count; i += kTogether, from += bits) {
    const uint16x8_t number = vandq_u16(places.numbers_at(from), of_number);
    const uint16x8_t code = vandq_u16(number, of_code);
    vst1q_u16(numbers + i, number);
    lowest = vminq_u16(lowest, code);
    highest = vmaxq_u16(highest, code);
  }
  values.lowest = vminvq_u16(lowest) < values.lowest ? vminvq_u16(lowest) : values.lowest;
  values.highest = vmaxvq_u16(highest) > values.highest ? vmaxvq_u16(highest) : values.highest;
  if (i < count) vst1q_u16(numbers + i, vandq_u16(places.numbers_at(from), of_number));
  for (; i < count; ++i) {
    const std::uint32_t code = numbers[i] & ((1U << values.code_bits) - 1);
    values.lowest = code < values.lowest ? code : values.lowest;
    values.highest = code > values.highest ? code : values.highest;
  }
  numbers[count] = 0;
  put_values(*values.tables, numbers, count, out);
  values.stream.position += std::uint64_t{count} * bits;
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
