// Kernels for NEON.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <arm_neon.h>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/fastsgd/fastsgd_vectors_ops.h"
#include "codecs/kernels/gathered_neon.h"
#include "codecs/kernels/logarithm.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Which values are sent.
namespace {

constexpr std::uint32_t kLanes = 4;
constexpr std::uint32_t kBytes = 16;  // masks of as many values are a vector of bytes
constexpr std::uint32_t kEight = 8;   // values that are brought together at a time

[[gnu::always_inline]] inline uint32x4_t magnitudes_of(float32x4_t x) noexcept {
  return vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(kMagnitudeMask));
}

[[gnu::always_inline]] inline uint16x8_t halves_of(uint32x4_t first, uint32x4_t second) noexcept {
  return vuzp1q_u16(vreinterpretq_u16_u32(first), vreinterpretq_u16_u32(second));
}

[[gnu::always_inline]] inline uint8x16x2_t bytes_of(uint32x4_t first, uint32x4_t second) noexcept {
  return {{vreinterpretq_u8_u32(first), vreinterpretq_u8_u32(second)}};
}

struct Vectors {
  static constexpr std::uint32_t kRest = kEight;

  uint32x4_t least;

  [[gnu::always_inline]] explicit Vectors(std::uint32_t cut) noexcept : least(vdupq_n_u32(cut)) {}

  static bool are_all_sent(const float* values, std::uint32_t count, std::uint32_t cut) noexcept {
    std::uint32_t i = 0;
    for (; i + kBytes <= count; i += kBytes) {
      uint32x4_t smallest = magnitudes_of(vld1q_f32(values + i));
      for (std::uint32_t j = kLanes; j < kBytes; j += kLanes) {
        smallest = vminq_u32(smallest, magnitudes_of(vld1q_f32(values + i + j)));
      }
      if (vminvq_u32(smallest) < cut) return false;
    }
    for (; i < count; ++i) {
      if ((bit_cast<std::uint32_t>(values[i]) & kMagnitudeMask) < cut) return false;
    }
    return true;
  }

  template <bool kResidual>
  [[gnu::always_inline]] std::uint64_t look_at(const PairInput& input, std::uint64_t at) const noexcept {
    uint8x16_t chosen[kGroup / kBytes];
#pragma GCC unroll 4
    for (unsigned part = 0; part < kGroup / kBytes; ++part) {
      uint32x4_t sent[4];
#pragma GCC unroll 4
      for (unsigned v = 0; v < 4; ++v) {
        const std::uint64_t first = at + part * kBytes + v * kLanes;
        float32x4_t x = vld1q_f32(input.in + first);
        if constexpr (kResidual) {
          x = vaddq_f32(x, vld1q_f32(input.residual + first));
          vst1q_f32(input.left + first, x);
        }
        sent[v] = vcgeq_u32(magnitudes_of(x), least);
      }
      const uint16x8_t low = halves_of(sent[0], sent[1]);
      const uint16x8_t high = halves_of(sent[2], sent[3]);
      chosen[part] = vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
    }
    return bits_of_bytes(chosen);
  }

  template <bool kResidual, bool kKeys>
  [[gnu::always_inline]] std::uint32_t take(const PairInput& input, std::uint64_t at, std::uint64_t chosen,
                                            const PairOutput& out) const noexcept {
    alignas(16) static constexpr std::uint32_t kPlaces[kEight] = {0, 1, 2, 3, 4, 5, 6, 7};
    const float* const x = (kResidual ? input.left : input.in) + at;
    const uint8x8_t sizes = vcnt_u8(vcreate_u8(chosen));
    const std::uint64_t counts = vget_lane_u64(vreinterpret_u64_u8(sizes), 0);
    std::uint32_t pairs = 0;
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kGroup; i += kEight) {
      const uint32x4_t before = vdupq_n_u32(static_cast<std::uint32_t>(at) + i);
      const uint32x4_t first = kKeys ? vld1q_u32(input.keys + at + i) : vaddq_u32(before, vld1q_u32(kPlaces));
      const uint32x4_t second =
          kKeys ? vld1q_u32(input.keys + at + i + kLanes) : vaddq_u32(before, vld1q_u32(kPlaces + kLanes));
      const uint8x16x2_t keys = bytes_of(first, second);
      const uint8x16x2_t values =
          bytes_of(vreinterpretq_u32_f32(vld1q_f32(x + i)), vreinterpretq_u32_f32(vld1q_f32(x + i + kLanes)));
      const uint8x16_t place = vshlq_n_u8(gathered(static_cast<std::uint32_t>(chosen >> i & 0xFF)), 2);
      const uint8x16x2_t places = places_of_words(places_of_halves(place).val[0]);
#pragma GCC unroll 2
      for (unsigned half = 0; half < 2; ++half) {
        const std::uint32_t to = pairs + half * kLanes;
        vst1q_u32(out.keys + to, vreinterpretq_u32_u8(vqtbl2q_u8(keys, places.val[half])));
        vst1q_f32(out.values + to, vreinterpretq_f32_u8(vqtbl2q_u8(values, places.val[half])));
      }
      pairs += static_cast<std::uint32_t>(counts >> i & 0xFF);
    }
    return pairs;
  }

  template <bool kResidual, bool kKeys>
  [[gnu::always_inline]] std::uint32_t rest(const PairInput& input, std::uint64_t at, std::uint32_t count,
                                            const PairOutput& out) const noexcept {
    std::uint32_t pairs = 0;
    for (std::uint32_t i = 0; i < count; ++i) {  // without a branch: written always, counted if sent
      float x = input.in[at + i];
      if constexpr (kResidual) x += input.residual[at + i];
      if constexpr (kResidual) input.left[at + i] = x;
      out.keys[pairs] = kKeys ? input.keys[at + i] : static_cast<std::uint32_t>(at + i);
      out.values[pairs] = x;
      pairs += (bit_cast<std::uint32_t>(x) & kMagnitudeMask) >= vgetq_lane_u32(least, 0) ? 1U : 0U;
    }
    return pairs;
  }
};

}  // namespace

Collected collect(const PairInput& input, std::uint64_t& at, std::uint32_t cut, const Staging& staging) {
  return collect_by<Vectors>(input, at, cut, staging);
}

// A code is a logarithm, rounded up, as for AVX2: guessed by a polynomial, and compared with a threshold
// where the guess is doubtful.
namespace {

constexpr std::uint32_t kTogether = 8;

// REQUIRES: magnitudes of normal numbers.
[[gnu::always_inline]] inline float32x4_t log2_of(uint32x4_t bits) noexcept {
  const int32x4_t exponent = vsubq_s32(vreinterpretq_s32_u32(vshrq_n_u32(bits, 23)), vdupq_n_s32(127));
  const uint32x4_t mantissa = vbslq_u32(vdupq_n_u32(0x007FFFFF), bits, vdupq_n_u32(0x3F800000));
  const float32x4_t t = vsubq_f32(vreinterpretq_f32_u32(mantissa), vdupq_n_f32(kLogarithmMiddle));
  float32x4_t sum = vdupq_n_f32(kLogarithm[0]);
  for (unsigned i = 1; i < kLogarithmTerms; ++i) {
    sum = vaddq_f32(vmulq_f32(sum, t), vdupq_n_f32(kLogarithm[i]));
  }
  return vaddq_f32(sum, vcvtq_f32_s32(exponent));
}

struct Quantizer {
  const Codebook& book;
  float32x4_t log_of_sum;
  float32x4_t codes_per_octave;
  float32x4_t doubtful;

  [[gnu::always_inline]] explicit Quantizer(const Codebook& codebook) noexcept : book(codebook) {
    log_of_sum = log2_of(vdupq_n_u32(book.values[0]));
    const float32x4_t octaves = vsubq_f32(log_of_sum, log2_of(vdupq_n_u32(book.values[book.last])));
    const float32x4_t codes = vdupq_n_f32(static_cast<float>(book.last));
    codes_per_octave = book.last > 0 ? vdivq_f32(codes, octaves) : vdupq_n_f32(0);
    doubtful =
        vaddq_f32(vmulq_f32(codes_per_octave, vdupq_n_f32(kDoubtfulOctaves)), vdupq_n_f32(kDoubtfulCodes));
  }

  // The codes of eight values.
  [[gnu::always_inline]] uint16x8_t codes_of(const uint32x4_t (&magnitudes)[2]) const noexcept {
    uint32x4_t codes[2];
    int32x4_t near[2];
    uint32x4_t close[2];
#pragma GCC unroll 2
    for (unsigned v = 0; v < 2; ++v) {
      const float32x4_t exact = vmulq_f32(vsubq_f32(log_of_sum, log2_of(magnitudes[v])), codes_per_octave);
      near[v] = vcvtnq_s32_f32(exact);
      const float32x4_t distance = vsubq_f32(exact, vcvtq_f32_s32(near[v]));
      // Those above the nearest whole number go up.
      codes[v] = vsubq_u32(vreinterpretq_u32_s32(near[v]), vcgtzq_f32(distance));
      close[v] = vcaleq_f32(distance, doubtful);
    }
    const uint8x8_t doubts =
        vmovn_u16(vuzp1q_u16(vreinterpretq_u16_u32(close[0]), vreinterpretq_u16_u32(close[1])));
    const std::uint64_t any = vget_lane_u64(vreinterpret_u64_u8(doubts), 0);
    if (any != 0) [[unlikely]]
      decide_of(magnitudes, near, any, codes);
    return vuzp1q_u16(vreinterpretq_u16_u32(codes[0]), vreinterpretq_u16_u32(codes[1]));
  }

  // `doubts`: a byte for each value, of all ones or zeros.
  void decide_of(const uint32x4_t (&magnitudes)[2], const int32x4_t (&near)[2], std::uint64_t doubts,
                 uint32x4_t (&codes)[2]) const noexcept {
    Guesses<kTogether> guesses;
    for (unsigned v = 0; v < 2; ++v) {
      vst1q_u32(guesses.codes + 4 * v, codes[v]);
      vst1q_u32(guesses.magnitudes + 4 * v, magnitudes[v]);
      vst1q_s32(guesses.near + 4 * v, near[v]);
    }
    std::uint32_t mask = 0;
    for (unsigned lane = 0; lane < kTogether; ++lane) mask |= (doubts >> 8 * lane & 1U ? 1U : 0U) << lane;
    decide(book, mask, guesses);
    for (unsigned v = 0; v < 2; ++v) codes[v] = vld1q_u32(guesses.codes + 4 * v);
  }
};

struct Extent {
  uint16x8_t lowest;
  uint16x8_t highest;
};

[[gnu::always_inline]] inline void quantize_eight(const Quantizer& quantizer, const float* values,
                                                  std::uint16_t* codes_of_pairs, Extent& extent) noexcept {
  uint32x4_t bits[2];
  uint32x4_t magnitudes[2];
  for (unsigned v = 0; v < 2; ++v) {
    bits[v] = vreinterpretq_u32_f32(vld1q_f32(values + 4 * v));
    magnitudes[v] = vandq_u32(bits[v], vdupq_n_u32(kMagnitudeMask));
  }
  const uint16x8_t codes = quantizer.codes_of(magnitudes);
  extent.lowest = vminq_u16(extent.lowest, codes);
  extent.highest = vmaxq_u16(extent.highest, codes);
  const uint16x8_t upper = vuzp2q_u16(vreinterpretq_u16_u32(bits[0]), vreinterpretq_u16_u32(bits[1]));
  vst1q_u16(codes_of_pairs, vbslq_u16(vdupq_n_u16(kSignBit), upper, codes));
}

}  // namespace

CodeRange quantize(const PairInput& input, const Codebook& book, const Collected& pairs,
                   std::uint16_t* codes_of_pairs) {
  if (book.values[book.last] < kSmallestNormal) {
    return kernels_for(TargetId::kReference).quantize(input, book, pairs, codes_of_pairs);
  }
  const Quantizer quantizer(book);
  Extent extent{vdupq_n_u16(kMaxCode), vdupq_n_u16(0)};
  std::uint32_t i = 0;
  for (; i + kTogether <= pairs.pairs; i += kTogether) {
    quantize_eight(quantizer, pairs.values + i, codes_of_pairs + i, extent);
  }
  if (i < pairs.pairs) {
    // The rest of the vector repeats the last value, so that the range of codes stays the same.
    float last[kTogether];
    for (std::uint32_t k = 0; k < kTogether; ++k) {
      last[k] = pairs.values[i + k < pairs.pairs ? i + k : pairs.pairs - 1];
    }
    quantize_eight(quantizer, last, codes_of_pairs + i, extent);
  }
  if (input.left != nullptr) subtract(input, book, pairs, codes_of_pairs, 0, pairs.pairs);
  return {vminvq_u16(extent.lowest), vmaxvq_u16(extent.highest)};
}

// Values and flags have one width: vectors of them are merged in pairs until words are full. Gaps differ in
// width: they are joined in twos or fours and appended.
namespace {

constexpr std::uint32_t kValues = 8;  // that are written together
constexpr std::uint32_t kGaps = 16;   // that are looked at together

// Numbers of `bits` bits in halves of words, as words of twice as many: low + high * 2^bits.
[[gnu::always_inline]] inline uint32x4_t merged_halves(uint16x8_t numbers, unsigned bits) noexcept {
  const uint32x4_t words = vreinterpretq_u32_u16(numbers);
  return vmlsq_u32(words, vshrq_n_u32(words, 16), vdupq_n_u32((1U << 16) - (1U << bits)));
}

// The same for words: 2^32 - 2^bits fits into one.
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

// Writes gaps: it holds flags by leading zeros, and lengths by flag.
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

  // Appends the sixteen gaps between keys, of which the first `count` count; the others are 0. Returns their
  // flags.
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

// Keys are read in three steps: flags become lengths; lengths say where each gap lies, two gaps to a load;
// and gaps, cleared of the bits behind them, are added up.
namespace {

constexpr std::uint64_t kFlagsBytes = 16;  // that are read at a time
constexpr std::uint64_t kPeekBytes = 8;    // of gaps

// A shift to the left by this leaves nothing of a word.
constexpr std::uint8_t kNothing = 0x80;

// For each gap of a tile: its bits, and the bits of the smallest gap that its flag stands for, less 1.
struct Lengths {
  alignas(16) std::uint8_t of[kTile];
  alignas(16) std::uint8_t least[kTile];
};

// Where 16 flags lie in their bytes, each within two, and at which bit.
struct FlagPlaces {
  alignas(16) std::uint8_t bytes[2][kGaps] = {};
  alignas(16) std::int16_t down[2][kGaps / 2] = {};

  constexpr explicit FlagPlaces(unsigned flag_bits) noexcept {
    for (unsigned i = 0; i < kGaps; ++i) {
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
  alignas(16) std::uint8_t of_flag[kGaps] = {};
  alignas(16) std::uint8_t least_of_flag[kGaps] = {};
  for (unsigned flag = 0; flag < 1U << kFlagBits; ++flag) {
    of_flag[flag] = static_cast<std::uint8_t>(bit_width(stream.masks[flag]));
    const std::uint32_t least = stream.least[flag];
    least_of_flag[flag] = least == 0 ? kNothing : static_cast<std::uint8_t>(bit_width(least) - 1);
  }
  const uint8x16_t of = vld1q_u8(of_flag);
  const uint8x16_t least = vld1q_u8(least_of_flag);
  for (std::uint32_t i = 0; i < count; i += kGaps) {
    const uint8x16_t flag = flags_of<kFlagBits>(flags + i * kFlagBits / 8);
    vst1q_u8(lengths.of + i, vqtbl1q_u8(of, flag));
    vst1q_u8(lengths.least + i, vqtbl1q_u8(least, flag));
  }
  // Behind the last flag nothing is read, and nothing is wrong.
  const std::uint32_t whole = (count + kGaps - 1) / kGaps * kGaps;
  std::memset(lengths.of + count, 0, whole - count);
  std::memset(lengths.least + count, kNothing, whole - count);
}

// Reads gaps, with bits of the following ones above them; returns the position behind them.
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

// Turns gaps, cleared of higher bits, into keys.
[[gnu::always_inline]] inline void add_up(const Lengths& lengths, const std::uint32_t* gaps,
                                          std::uint32_t count, std::uint32_t key, GapStream& stream,
                                          std::uint32_t* keys) noexcept {
  const uint32x4_t zero = vdupq_n_u32(0);
  const uint32x4_t one = vdupq_n_u32(1);
  uint32x4_t before = vdupq_n_u32(key);
  uint32x4_t wrong = zero;
  uint32x4_t all = zero;
  for (std::uint32_t i = 0; i < count; i += kGaps) {
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
  const std::uint32_t whole = (run.count + kGaps - 1) / kGaps * kGaps;
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

// Values are looked up one by one. Eight numbers of n bits fill n bytes.
namespace {

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
