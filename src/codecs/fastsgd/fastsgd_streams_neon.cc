// Values and flags of one width, sixteen bytes of them in a vector, are merged in pairs until words are full.
// Gaps, whose widths differ, are brought together in twos or fours and appended.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <arm_neon.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/fastsgd/fastsgd_streams_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kValues = 8;  // that are written together
constexpr std::uint32_t kGaps = 16;   // that are looked at together

// Numbers of `bits` bits in halves of words, as words of twice as many: low + high * 2^bits.
[[gnu::always_inline]] inline uint32x4_t merged_halves(uint16x8_t numbers, unsigned bits) noexcept {
  const uint32x4_t words = vreinterpretq_u32_u16(numbers);
  return vmlsq_u32(words, vshrq_n_u32(words, 16), vdupq_n_u32((1U << 16) - (1U << bits)));
}

// The same of words, 2^32 - 2^bits fitting one.
[[gnu::always_inline]] inline uint64x2_t merged_words(uint32x4_t numbers, unsigned bits) noexcept {
  const uint64x2_t both = vreinterpretq_u64_u32(numbers);
  return vmlsl_u32(both, vshrn_n_u64(both, 32), vdup_n_u32(0U - (1U << bits)));
}

// Eight numbers of code_bits + 1 bits each, in 16 bits.
[[gnu::always_inline]] inline uint16x8_t numbers_of(const std::uint16_t* codes, std::uint32_t lowest,
                                                    unsigned code_bits) noexcept {
  const uint16x8_t code = vld1q_u16(codes);
  const uint16x8_t offset =
      vsubq_u16(vbicq_u16(code, vdupq_n_u16(kSignBit)), vdupq_n_u16(static_cast<std::uint16_t>(lowest)));
  const int16x8_t to_place = vdupq_n_s16(static_cast<std::int16_t>(code_bits));
  return vorrq_u16(offset, vshlq_u16(vshrq_n_u16(code, 15), to_place));
}

// Of gaps: flags, lengths by flag, and the gaps themselves.
template <unsigned kFlagBits>
class GapWriter {
 public:
  [[gnu::always_inline]] explicit GapWriter(const GapLengths& of) noexcept {
    alignas(16) std::uint8_t flags[3 * kGaps] = {};
    alignas(16) std::uint8_t lengths[kGaps] = {};
    for (unsigned zeros = 1; zeros <= kMaxKeyBits; ++zeros) flags[zeros] = of.flag_of[kMaxKeyBits - zeros];
    for (unsigned flag = 0; flag < 1U << kFlagBits; ++flag) lengths[flag] = of.of_flag[flag];
    flags_ = {{vld1q_u8(flags), vld1q_u8(flags + kGaps), vld1q_u8(flags + 2 * kGaps)}};
    lengths_ = vld1q_u8(lengths);
  }

  // Appends sixteen gaps behind keys, of which `count` are there; those behind are 0. Returns their flags.
  template <bool kInFours>
  [[gnu::always_inline]] std::uint64_t put(const std::uint32_t* keys, std::uint32_t count,
                                           WordAppender& out) const noexcept {
    uint32x4_t gaps[4];
    uint16x8_t zeros[2];
#pragma GCC unroll 4
    for (unsigned v = 0; v < 4; ++v) {
      const uint32x4_t distances = vsubq_u32(vld1q_u32(keys + 4 * v + 1), vld1q_u32(keys + 4 * v));
      gaps[v] = vsubq_u32(distances, vdupq_n_u32(1));
    }
#pragma GCC unroll 2
    for (unsigned half = 0; half < 2; ++half) {
      zeros[half] = vuzp1q_u16(vreinterpretq_u16_u32(vclzq_u32(gaps[2 * half])),
                               vreinterpretq_u16_u32(vclzq_u32(gaps[2 * half + 1])));
    }
    const uint8x16_t leading = vuzp1q_u8(vreinterpretq_u8_u16(zeros[0]), vreinterpretq_u8_u16(zeros[1]));
    const uint8x16_t flags = vqtbl3q_u8(flags_, leading);
    uint8x16_t lengths = vqtbl1q_u8(lengths_, flags);
    if (count < kGaps) lengths = vandq_u8(lengths, first_bytes(count));
    append<kInFours>(gaps, lengths, out);
    return packed(flags);
  }

 private:
  static uint8x16_t first_bytes(std::uint32_t count) noexcept {
    alignas(16) static constexpr std::uint8_t kPlaces[kGaps] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                                8, 9, 10, 11, 12, 13, 14, 15};
    return vcltq_u8(vld1q_u8(kPlaces), vdupq_n_u8(static_cast<std::uint8_t>(count)));
  }

  // Sixteen flags, in 16 * kFlagBits bits.
  [[gnu::always_inline]] static std::uint64_t packed(uint8x16_t flags) noexcept {
    const uint16x8_t bytes = vreinterpretq_u16_u8(flags);
    const uint16x8_t twos =
        vmlsq_u16(bytes, vshrq_n_u16(bytes, 8), vdupq_n_u16((1U << 8) - (1U << kFlagBits)));
    const uint64x2_t eights = merged_words(merged_halves(twos, 2 * kFlagBits), 4 * kFlagBits);
    return vgetq_lane_u64(eights, 0) | vgetq_lane_u64(eights, 1) << 8 * kFlagBits;
  }

  template <bool kInFours>
  [[gnu::always_inline]] static void append(const uint32x4_t (&gaps)[4], uint8x16_t lengths,
                                            WordAppender& out) noexcept {
    alignas(16) static constexpr std::uint8_t kEven[4][kGaps] = {
        {0, 99, 99, 99, 99, 99, 99, 99, 2, 99, 99, 99, 99, 99, 99, 99},
        {4, 99, 99, 99, 99, 99, 99, 99, 6, 99, 99, 99, 99, 99, 99, 99},
        {8, 99, 99, 99, 99, 99, 99, 99, 10, 99, 99, 99, 99, 99, 99, 99},
        {12, 99, 99, 99, 99, 99, 99, 99, 14, 99, 99, 99, 99, 99, 99, 99}};
    alignas(16) std::uint64_t twos[kGaps / 2];
#pragma GCC unroll 4
    for (unsigned v = 0; v < 4; ++v) {
      const uint64x2_t both = vreinterpretq_u64_u32(gaps[v]);
      const int64x2_t shift = vreinterpretq_s64_u8(vqtbl1q_u8(lengths, vld1q_u8(kEven[v])));
      const uint64x2_t high = vshlq_u64(vshrq_n_u64(both, 32), shift);
      vst1q_u64(twos + 2 * v, vorrq_u64(vandq_u64(both, vdupq_n_u64(0xFFFFFFFF)), high));
    }
    const uint8x16_t of_twos = vpaddq_u8(lengths, lengths);
    const std::uint64_t bits = vgetq_lane_u64(vreinterpretq_u64_u8(of_twos), 0);
    constexpr unsigned kTwos = kInFours ? 2 : 1;
#pragma GCC unroll 8
    for (unsigned i = 0; i < kGaps / 2; i += kTwos) {
      const auto first = static_cast<unsigned>(bits >> 8 * i & 0xFF);
      if constexpr (kInFours) {
        const auto second = static_cast<unsigned>(bits >> 8 * (i + 1) & 0xFF);
        out.put<false>(twos[i] | twos[i + 1] << first, first + second);
      } else {
        out.put<false>(twos[i], first);
      }
    }
  }

  uint8x16x3_t flags_;  // by the number of leading zeros
  uint8x16_t lengths_;  // by flag
};

constexpr unsigned kKeyBitsOfFours = 16;  // four gaps fill a word at most

template <unsigned kFlagBits, bool kInFours>
std::byte* write(const ChunkPairs& chunk, unsigned key_bits, std::byte* flags) noexcept {
  const GapWriter<kFlagBits> writer(GapLengths(key_bits, kFlagBits));
  const std::uint32_t count = chunk.pairs - 1;
  WordAppender out(flags + (count * kFlagBits + 7) / 8);
  std::uint32_t i = 0;
  for (; i + kGaps <= count; i += kGaps) {
    const std::uint64_t packed = to_little_endian(writer.template put<kInFours>(chunk.keys + i, kGaps, out));
    std::memcpy(flags, &packed, std::uint64_t{2} * kFlagBits);
    flags += std::uint64_t{2} * kFlagBits;
  }
  if (i < count) {
    std::uint32_t copy[kGaps + 1] = {};
    std::memcpy(copy, chunk.keys + i, (count - i + 1) * sizeof *copy);
    // Gaps of 0 behind the last: their flags are the zero bits that fill the last byte.
    for (std::uint32_t k = count - i + 1; k <= kGaps; ++k) copy[k] = copy[k - 1] + 1;
    const std::uint64_t packed = writer.template put<kInFours>(copy, count - i, out);
    for (std::uint32_t k = 0; k < ((count - i) * kFlagBits + 7) / 8; ++k) {
      flags[k] = static_cast<std::byte>(packed >> 8 * k);
    }
  }
  return out.finish();
}

template <unsigned kFlagBits>
std::byte* write_for(const ChunkPairs& chunk, unsigned key_bits, std::byte* out) noexcept {
  return key_bits <= kKeyBitsOfFours ? write<kFlagBits, true>(chunk, key_bits, out)
                                     : write<kFlagBits, false>(chunk, key_bits, out);
}

}  // namespace

std::byte* write_values(const ChunkPairs& chunk, unsigned code_bits, std::byte* out) {
  const unsigned bits = code_bits + 1;
  const unsigned half = 4 * bits;
  const std::uint32_t end = chunk.pairs / kValues * kValues;
  for (std::uint32_t i = 0; i < end; i += kValues) {
    const uint16x8_t numbers = numbers_of(chunk.codes + i, chunk.range.lowest, code_bits);
    const uint64x2_t fours = merged_words(merged_halves(numbers, bits), 2 * bits);
    const std::uint64_t low = vgetq_lane_u64(fours, 0);
    const std::uint64_t high = vgetq_lane_u64(fours, 1);
    store_le(out, low);
    store_le(out + half / 8, low >> half / 8 * 8 | high << half % 8);  // the end may lie inside a byte
    out += bits;
  }
  return reference::write_values(rest_of(chunk, end), code_bits, out);
}

std::byte* write_gaps(const ChunkPairs& chunk, unsigned key_bits, unsigned flag_bits, std::byte* out) {
  if (flag_bits > kVectorFlagBits || key_bits > kMostKeyBits) {
    return reference::write_gaps(chunk, key_bits, flag_bits, out);
  }
  return for_flag_bits(flag_bits,
                       [&]<unsigned kFlagBits>() { return write_for<kFlagBits>(chunk, key_bits, out); });
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
