// Reference kernels.
#include "base/bit_functions.h"
#include "codecs/minifloat/minifloat_ops.h"

namespace deltawire::minifloat::DELTAWIRE_TARGET {

namespace {

// The code nearest to y, ties to even; of what is beyond the largest number, that.
template <Format kFormat>
[[gnu::always_inline]] inline std::uint32_t code_of(float y) noexcept {
  constexpr unsigned kDropped = 23 - kIts<kFormat>.mantissa;
  constexpr std::uint32_t kBias = 127 - kIts<kFormat>.bias;
  constexpr std::uint32_t kBelowHalf = (1U << (kDropped - 1)) - 1;
  const std::uint32_t magnitude = magnitude_bits(y);
  const std::uint32_t normal =
      (magnitude - (kBias << 23) + kBelowHalf + (magnitude >> kDropped & 1)) >> kDropped;
  // The last bit of this sum is the format's smallest number.
  const float ruler = power_of_two(24 - static_cast<int>(kIts<kFormat>.bias + kIts<kFormat>.mantissa));
  const std::uint32_t subnormal =
      bit_cast<std::uint32_t>(bit_cast<float>(magnitude) + ruler) - bit_cast<std::uint32_t>(ruler);
  const auto code = static_cast<std::int32_t>(chosen(magnitude >= (kBias + 1) << 23, normal, subnormal));
  constexpr auto kLargest = static_cast<std::int32_t>(kIts<kFormat>.largest);
  const std::uint32_t sign = bit_cast<std::uint32_t>(y) >> 31 << (kIts<kFormat>.bits - 1);
  return static_cast<std::uint32_t>(code < kLargest ? code : kLargest) | sign;
}

template <Format kFormat>
[[gnu::always_inline]] inline float number_of(std::uint32_t code) noexcept {
  constexpr unsigned kDropped = 23 - kIts<kFormat>.mantissa;
  const std::uint32_t magnitude = code & ((1U << (kIts<kFormat>.bits - 1)) - 1);
  const std::uint32_t normal = (magnitude << kDropped) + ((127 - kIts<kFormat>.bias) << 23);
  // Signed: there are instructions for it.
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) *
                          power_of_two(1 - static_cast<int>(kIts<kFormat>.bias + kIts<kFormat>.mantissa));
  const std::uint32_t number =
      chosen(magnitude >> kIts<kFormat>.mantissa > 0, normal, bit_cast<std::uint32_t>(subnormal));
  return bit_cast<float>(number | code >> (kIts<kFormat>.bits - 1) << 31);
}

struct Group {
  static std::uint32_t add(const Addends& x, float* sums) noexcept {
    for (std::uint32_t i = 0; i < kGroup; ++i) sums[i] = sum_at(x, i);
    return largest_magnitude(sums, nullptr, kGroup);
  }

  template <Format kFormat>
  static void encode(float* sums, float inverse, float unit, std::byte* to) noexcept {
    std::uint32_t codes[kGroup];
    for (std::uint32_t i = 0; i < kGroup; ++i) {
      codes[i] = code_of<kFormat>(sums[i] * inverse);
      sums[i] -= number_of<kFormat>(codes[i]) * unit;
    }
    constexpr bool kBytes = kIts<kFormat>.bits == 8;
    for (std::uint32_t i = 0; i < bytes_of<kFormat>(kGroup); ++i) {
      to[i] = static_cast<std::byte>(kBytes ? codes[i] : codes[2 * i] | codes[2 * i + 1] << 4);
    }
  }

  template <Format kFormat, bool kAccumulates>
  static void decode(const std::byte* from, float unit, float scale, float* slot) noexcept {
    std::uint32_t codes[kGroup];
    for (std::uint32_t i = 0; i < bytes_of<kFormat>(kGroup); ++i) {
      const auto byte = static_cast<std::uint32_t>(from[i]);
      if (kIts<kFormat>.bits == 8) {
        codes[i] = byte;
      } else {
        codes[2 * i] = byte & 0xF;
        codes[2 * i + 1] = byte >> 4;
      }
    }
    for (std::uint32_t i = 0; i < kGroup; ++i) {
      const float value = scale * (number_of<kFormat>(codes[i]) * unit);
      slot[i] = kAccumulates ? slot[i] + value : value;
    }
  }
};

}  // namespace

extern constexpr Kernels kKernels =
    kKernelsBy<Group, Format::kE4M3, Format::kE5M2, Format::kE2M1, Format::kE3M0>;

}  // namespace deltawire::minifloat::DELTAWIRE_TARGET
