// A code is a logarithm, rounded up, as for AVX2: guessed by a polynomial, and compared with a threshold
// where the guess is doubtful.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <arm_neon.h>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/fastsgd/fastsgd_quantize_ops.h"
#include "codecs/kernels/logarithm.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

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

  // Of eight values.
  [[gnu::always_inline]] uint16x8_t codes_of(const uint32x4_t (&magnitudes)[2]) const noexcept {
    uint32x4_t codes[2];
    int32x4_t near[2];
    uint32x4_t close[2];
#pragma GCC unroll 2
    for (unsigned v = 0; v < 2; ++v) {
      const float32x4_t exact = vmulq_f32(vsubq_f32(log_of_sum, log2_of(magnitudes[v])), codes_per_octave);
      near[v] = vcvtnq_s32_f32(exact);
      const float32x4_t distance = vsubq_f32(exact, vcvtq_f32_s32(near[v]));
      // Those above the next whole number go up.
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
    // Behind the last value its like, which changes no extent.
    float last[kTogether];
    for (std::uint32_t k = 0; k < kTogether; ++k) {
      last[k] = pairs.values[i + k < pairs.pairs ? i + k : pairs.pairs - 1];
    }
    quantize_eight(quantizer, last, codes_of_pairs + i, extent);
  }
  if (input.left != nullptr) subtract(input, book, pairs, codes_of_pairs, 0, pairs.pairs);
  return {vminvq_u16(extent.lowest), vmaxvq_u16(extent.highest)};
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
