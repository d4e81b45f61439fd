// Decoding for NEON.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <arm_neon.h>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_decode_ops.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Keys out of flags and gaps, in three steps: flags become lengths; lengths say where gaps lie in the stream,
// two in what is loaded at a time; and gaps, less the bits that aren't theirs, are added up.
namespace {

constexpr std::uint32_t kLanes = 16;       // flags that are looked at together
constexpr std::uint64_t kFlagsBytes = 16;  // that are read at a time
constexpr std::uint64_t kPeekBytes = 8;    // of gaps

// A shift to the left by this leaves nothing of a word.
constexpr std::uint8_t kNothing = 0x80;

// For each gap of a tile: its bits, and the bits of the smallest gap that its flag stands for, less 1.
struct Lengths {
  alignas(16) std::uint8_t of[kTile];
  alignas(16) std::uint8_t least[kTile];
};

// Where 16 flags lie in their bytes, two of which have all of one, and how far up.
struct FlagPlaces {
  alignas(16) std::uint8_t bytes[2][kLanes] = {};
  alignas(16) std::int16_t down[2][kLanes / 2] = {};

  constexpr explicit FlagPlaces(unsigned flag_bits) noexcept {
    for (unsigned i = 0; i < kLanes; ++i) {
      const unsigned bit = i * flag_bits;
      bytes[i / 8][i % 8 * 2] = static_cast<std::uint8_t>(bit / 8);
      bytes[i / 8][i % 8 * 2 + 1] = static_cast<std::uint8_t>(bit / 8 + 1);
      down[i / 8][i % 8] = static_cast<std::int16_t>(-static_cast<int>(bit % 8));
    }
  }
};

// Sixteen flags in bytes.
template <unsigned kFlagBits>
[[gnu::always_inline]] inline uint8x16_t flags_of(const std::byte* from) noexcept {
  static constexpr FlagPlaces kPlaces(kFlagBits);
  const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const std::uint8_t*>(from));
  uint8x16_t halves[2];
#pragma GCC unroll 2
  for (unsigned half = 0; half < 2; ++half) {
    const uint16x8_t pairs = vreinterpretq_u16_u8(vqtbl1q_u8(bytes, vld1q_u8(kPlaces.bytes[half])));
    halves[half] = vreinterpretq_u8_u16(vshlq_u16(pairs, vld1q_s16(kPlaces.down[half])));
  }
  return vandq_u8(vuzp1q_u8(halves[0], halves[1]), vdupq_n_u8((1U << kFlagBits) - 1));
}

template <unsigned kFlagBits>
[[gnu::always_inline]] inline void look_up(const GapStream& stream, const std::byte* flags,
                                           std::uint32_t count, Lengths& lengths) noexcept {
  alignas(16) std::uint8_t of_flag[kLanes] = {};
  alignas(16) std::uint8_t least_of_flag[kLanes] = {};
  for (unsigned flag = 0; flag < 1U << kFlagBits; ++flag) {
    of_flag[flag] = static_cast<std::uint8_t>(bit_width(stream.masks[flag]));
    const std::uint32_t least = stream.least[flag];
    least_of_flag[flag] = least == 0 ? kNothing : static_cast<std::uint8_t>(bit_width(least) - 1);
  }
  const uint8x16_t of = vld1q_u8(of_flag);
  const uint8x16_t least = vld1q_u8(least_of_flag);
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    const uint8x16_t flag = flags_of<kFlagBits>(flags + i * kFlagBits / 8);
    vst1q_u8(lengths.of + i, vqtbl1q_u8(of, flag));
    vst1q_u8(lengths.least + i, vqtbl1q_u8(least, flag));
  }
  // Behind the last flag, nothing is taken and nothing is wrong.
  const std::uint32_t whole = (count + kLanes - 1) / kLanes * kLanes;
  std::memset(lengths.of + count, 0, whole - count);
  std::memset(lengths.least + count, kNothing, whole - count);
}

// Takes gaps out of the stream, below bits of those that follow; returns the position behind them.
[[gnu::always_inline]] inline std::uint64_t take(const std::byte* from, std::uint64_t position,
                                                 std::uint32_t count, const Lengths& lengths,
                                                 std::uint32_t* gaps) noexcept {
  static_assert(2 * kVectorKeyBits <= 57);
#pragma GCC unroll 4
  for (std::uint32_t i = 0; i < count; i += 2) {
    const std::uint64_t word = load_le<std::uint64_t>(from + position / 8) >> position % 8;
    gaps[i] = static_cast<std::uint32_t>(word);
    gaps[i + 1] = static_cast<std::uint32_t>(word >> lengths.of[i]);
    position += std::uint64_t{lengths.of[i]} + lengths.of[i + 1];
  }
  return position;
}

// Sixteen bytes as the lowest of as many words.
[[gnu::always_inline]] inline void widened(const std::uint8_t* bytes, int32x4_t (&words)[4]) noexcept {
  const uint8x16_t all = vld1q_u8(bytes);
  const uint16x8_t low = vmovl_u8(vget_low_u8(all));
  const uint16x8_t high = vmovl_high_u8(all);
  words[0] = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low)));
  words[1] = vreinterpretq_s32_u32(vmovl_high_u16(low));
  words[2] = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high)));
  words[3] = vreinterpretq_s32_u32(vmovl_high_u16(high));
}

// Keys of gaps, whose higher bits are dropped.
[[gnu::always_inline]] inline void add_up(const Lengths& lengths, const std::uint32_t* gaps,
                                          std::uint32_t count, std::uint32_t key, GapStream& stream,
                                          std::uint32_t* keys) noexcept {
  const uint32x4_t zero = vdupq_n_u32(0);
  const uint32x4_t one = vdupq_n_u32(1);
  uint32x4_t before = vdupq_n_u32(key);
  uint32x4_t wrong = zero;
  uint32x4_t all = zero;
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    int32x4_t bits[4];
    int32x4_t bits_of_least[4];
    widened(lengths.of + i, bits);
    widened(lengths.least + i, bits_of_least);
#pragma GCC unroll 4
    for (unsigned v = 0; v < 4; ++v) {
      const uint32x4_t others = vshlq_u32(vdupq_n_u32(~0U), bits[v]);
      const uint32x4_t gap = vbicq_u32(vld1q_u32(gaps + i + 4 * v), others);
      wrong = vorrq_u32(wrong, vcltq_u32(gap, vshlq_u32(one, bits_of_least[v])));
      all = vorrq_u32(all, gap);
      uint32x4_t sums = vaddq_u32(gap, one);
      sums = vaddq_u32(sums, vextq_u32(zero, sums, 3));
      sums = vaddq_u32(sums, vextq_u32(zero, sums, 2));
      vst1q_u32(keys + i + 4 * v, vaddq_u32(sums, before));
      // The sum alone waits for the four before.
      before = vaddq_u32(before, vdupq_laneq_u32(sums, 3));
    }
  }
  stream.has_wrong_flag |= vmaxvq_u32(wrong) != 0;
  const uint32x2_t half = vorr_u32(vget_low_u32(all), vget_high_u32(all));
  stream.all_gaps |= vget_lane_u32(half, 0) | vget_lane_u32(half, 1);
}

template <unsigned kFlagBits>
void read(KeyRun& run) noexcept {
  constexpr std::uint64_t kMostFlagBytes = std::uint64_t{kTile} * kFlagBits / 8 + kFlagsBytes;
  constexpr std::uint64_t kMostGapBytes = kTile * kVectorKeyBits / 8 + 2 * kPeekBytes;
  GapStream& stream = *run.gaps;
  BitWindow& flags = stream.streams.flags;
  BitWindow& window = stream.streams.gaps;
  const std::byte* const end = window.at + window.bytes;
  Readable<kMostFlagBytes> readable_flags;
  Readable<kMostGapBytes> readable_gaps;
  Lengths lengths;
  const std::byte* from = readable_flags.of(flags.at + flags.position / 8, end,
                                            std::uint64_t{run.count} * kFlagBits / 8 + kFlagsBytes);
  look_up<kFlagBits>(stream, from, run.count, lengths);

  alignas(16) std::uint32_t gaps[kTile];
  const std::uint32_t whole = (run.count + kLanes - 1) / kLanes * kLanes;
  const std::uint64_t first = window.position / 8;
  from = readable_gaps.of(window.at + (first < window.bytes ? first : window.bytes), end,
                          std::uint64_t{run.count} * stream.key_bits / 8 + kPeekBytes + 2);
  const std::uint64_t position = take(from, window.position % 8, whole, lengths, gaps);
  const auto key = static_cast<std::uint32_t>(run.key);
  add_up(lengths, gaps, run.count, key, stream, run.keys);
  flags.position += std::uint64_t{run.count} * kFlagBits;
  window.position = first * 8 + position;
  if (run.count > 0) run.key += run.keys[run.count - 1] - key;
}

}  // namespace

void open_gaps(GapStream& gaps, unsigned key_bits, unsigned flag_bits) {
  fill_gaps(gaps, key_bits, flag_bits);
}

void read_keys(KeyRun& run) {
  if (run.gaps->key_bits == 0) return follow_on(run);
  for_flag_bits(run.gaps->flag_bits, [&]<unsigned kFlagBits>() { read<kFlagBits>(run); });
}

// Values by a look into their table each. Eight numbers of a width are as many bytes.
namespace {

constexpr std::uint32_t kTogether = 8;
constexpr std::uint64_t kValuePeekBytes = 16;
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
  const std::uint64_t bytes = std::uint64_t{whole / kTogether} * bits + kValuePeekBytes;
  std::byte copy[kMostBytes + kValuePeekBytes];
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

Decoded decode_row(const ChunkRow& row, const DecodeRules& rules, DecodeTarget& target) {
  return decode_in_tiles(row, rules, target);
}

Fault place_values(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target) {
  return place_in_tiles(chunk, rules, target);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
