#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/float16.h"
#include "base/little_endian.h"
#include "codecs/halves/halves_ops.h"

namespace deltawire::halves::DELTAWIRE_TARGET {

namespace {

constexpr std::uint16_t kLargest = 0x7BFF;  // 65,504
constexpr std::uint16_t kInfinity = 0x7C00;

// How a format rounds, and what its codes stand for.
struct Bf16 {
  static std::uint16_t round(float x) noexcept { return bf16_of(bit_cast<std::uint32_t>(x)); }
  static std::uint32_t bits(std::uint16_t code) noexcept { return bits_of_bf16(code); }
};

struct Fp16 {
  static std::uint16_t round(float x) noexcept {
    const std::uint16_t code = f16_of(bit_cast<std::uint32_t>(x));
    if ((code & kInfinity) != kInfinity) return code;
    return static_cast<std::uint16_t>((code & ~kInfinity) | kLargest);
  }
  static std::uint32_t bits(std::uint16_t code) noexcept { return bits_of_f16(code); }
};

std::uint16_t stored(const std::byte* payload, std::uint64_t i) noexcept {
  return load_le<std::uint16_t>(payload + i * kValueBytes);
}

template <class Format>
void encode(const float* in, const float* residual, float* left, std::uint64_t count, std::byte* payload) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const float x = residual != nullptr ? in[i] + residual[i] : in[i];
    const std::uint16_t rounded = Format::round(x);
    store_le(payload + i * kValueBytes, rounded);
    if (left == nullptr) continue;
    const std::uint32_t bits = Format::bits(rounded);
    // What became Inf or NaN can't be corrected later: a residual of NaN would poison every step after it.
    const bool finite = (bits & kMagnitudeMask) < kInfinityBits;
    left[i] = finite ? x - bit_cast<float>(bits) : 0.0F;
  }
}

std::uint64_t find_refused(const std::byte* payload, std::uint64_t count) {
  std::uint64_t i = 0;
  while (i < count && (stored(payload, i) & kInfinity) != kInfinity) ++i;
  return i;
}

template <class Format>
void decode_overwrite(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  if (scale == 1.0F) {
    // As integers: a float on its way through a register may lose a NaN's bits.
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint32_t bits = Format::bits(stored(payload, i));
      std::memcpy(slot + i, &bits, sizeof bits);
    }
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    slot[i] = scale * bit_cast<float>(Format::bits(stored(payload, i)));
  }
}

template <class Format>
void decode_accumulate(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) {
    slot[i] += scale * bit_cast<float>(Format::bits(stored(payload, i)));
  }
}

}  // namespace

extern constexpr Kernels kKernels = {
    .bf16 = {encode<Bf16>, nullptr, decode_overwrite<Bf16>, decode_accumulate<Bf16>},
    .fp16 = {encode<Fp16>, find_refused, decode_overwrite<Fp16>, decode_accumulate<Fp16>}};

}  // namespace deltawire::halves::DELTAWIRE_TARGET
