// Values of 16 bits, in float32: the rounding before gcomp's coding, and what it leaves.
#include <algorithm>

#include "base/bit_functions.h"
#include "base/float16.h"
#include "codecs/gcomp/gcomp_chunk.h"

namespace deltawire::gcomp {

namespace {

constexpr std::uint32_t kQuiet = 0x00400000;  // of a NaN

// NaN and Inf, of whose bits some are dropped.
std::uint32_t special(std::uint32_t magnitude, std::uint32_t unused) noexcept {
  const std::uint32_t kept = magnitude >> unused << unused;
  return kept | chosen(magnitude > kInfinityBits, kQuiet, 0);
}

std::uint32_t as_bf16(std::uint32_t magnitude) noexcept {
  constexpr std::uint32_t kMost = 0x7F7F0000;
  const std::uint32_t finite = bits_of_bf16(bf16_of(std::min(magnitude, kMost)));
  return chosen(magnitude >= kInfinityBits, special(magnitude, kBFloat16.unused), finite);
}

// As f16_of() rounds, but in float32 and inlined: twice as fast.
std::uint32_t as_fp16(std::uint32_t magnitude) noexcept {
  constexpr std::uint32_t kLeastNormal = 0x38800000;  // 2^-14
  constexpr std::uint32_t kMost = 0x477FE000;         // 65504
  constexpr std::uint32_t kLow = (1U << kFloat16.unused) - 1;
  // The last bit of 0.5 is the smallest binary16.
  const float small = (bit_cast<float>(std::min(magnitude, kLeastNormal)) + 0.5F) - 0.5F;
  const std::uint32_t rounded = (magnitude + (kLow >> 1) + (magnitude >> kFloat16.unused & 1)) & ~kLow;
  const std::uint32_t normal = std::min(rounded, kMost);
  const std::uint32_t finite = chosen(magnitude >= kLeastNormal, normal, bit_cast<std::uint32_t>(small));
  return chosen(magnitude >= kInfinityBits, special(magnitude, kFloat16.unused), finite);
}

template <class As>
void round_by(const Values& chunk, float* halves, As as) noexcept {
  const float* const residual = chunk.residual;
  for (std::uint32_t i = 0; i < chunk.count; ++i) {
    const auto bits = bit_cast<std::uint32_t>(residual != nullptr ? chunk.in[i] + residual[i] : chunk.in[i]);
    halves[i] = bit_cast<float>(as(bits & kMagnitudeMask) | (bits & kSignBit));
  }
}

}  // namespace

void round_to_halves(const Values& chunk, float* halves) noexcept {
  if (chunk.rule.precision.unused == kBFloat16.unused) {
    round_by(chunk, halves, [](std::uint32_t magnitude) { return as_bf16(magnitude); });
  } else {
    round_by(chunk, halves, [](std::uint32_t magnitude) { return as_fp16(magnitude); });
  }
}

void keep_left_over(const Values& chunk, const float* halves, const float* left) noexcept {
  for (std::uint32_t i = 0; i < chunk.count; ++i) {
    const float x = chunk.in[i] + chunk.residual[i];
    const bool finite = (bit_cast<std::uint32_t>(x) & kInfinityBits) != kInfinityBits;
    chunk.residual[i] = finite ? (x - halves[i]) + left[i] : 0.0F;
  }
}

}  // namespace deltawire::gcomp
