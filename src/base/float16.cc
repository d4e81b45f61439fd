#include "base/float16.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bit_functions.h"
#include "deltawire/tensor.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kHalfInfinity = 0x7C00;
constexpr std::uint32_t kExponentShift = 112U << 23;  // float32's exponent bias minus binary16's

template <class Convert>
void widen_all(const std::uint16_t* from, std::uint64_t count, float* to, Convert convert) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(convert(from[i]));
}

template <class Convert>
void narrow_all(const float* from, std::uint64_t count, std::uint16_t* to, Convert convert) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) to[i] = convert(std::bit_cast<std::uint32_t>(from[i]));
}

}  // namespace

std::uint16_t f16_of(std::uint32_t bits) noexcept {
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & kMagnitudeMask;
  constexpr std::uint32_t kLeastNormal = 0x38800000;  // 2^-14
  const std::uint32_t normal = (magnitude - kExponentShift + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  // The last bit of 0.5 + x has the value of the smallest subnormal, 2^-24.
  const auto small = std::bit_cast<float>(chosen(magnitude < kLeastNormal, magnitude, 0));
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(small + 0.5F) - 0x3F000000;
  const std::uint32_t below = chosen(magnitude < kLeastNormal, subnormal, normal);
  const std::uint32_t half = chosen(magnitude < 0x47800000, below, kHalfInfinity);  // below 2^16
  return static_cast<std::uint16_t>(sign | chosen(magnitude > kInfinityBits, 0x7E00, half));
}

std::uint32_t bits_of_f16(std::uint16_t value) noexcept {
  const std::uint32_t sign = (value & 0x8000U) << 16;
  const std::uint32_t magnitude = value & 0x7FFFU;
  if (magnitude >= kHalfInfinity) return sign | kInfinityBits | (magnitude & 0x3FF) << 13;
  if (magnitude >= 0x400) return sign | ((magnitude << 13) + kExponentShift);
  return sign | std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24F);
}

std::uint64_t first_beyond(std::span<const float> values, DType dtype) noexcept {
  if (dtype != DType::kBF16 && dtype != DType::kF16) return values.size();
  // Half a step above the largest value: 2^128 - 2^119 and 65,520.
  const std::uint32_t least = dtype == DType::kBF16 ? 0x7F7F8000 : 0x477FF000;
  const auto is_beyond = [least](float value) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & kMagnitudeMask;
    return static_cast<unsigned>(magnitude >= least) & static_cast<unsigned>(magnitude < kInfinityBits);
  };
  constexpr std::size_t kBlock = 4096;  // checked without a branch for each value, so that it vectorizes
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::size_t end = std::min(values.size(), begin + kBlock);
    unsigned found = 0;
    for (std::size_t i = begin; i < end; ++i) found |= is_beyond(values[i]);
    if (found == 0) continue;
    std::size_t i = begin;
    while (is_beyond(values[i]) == 0) ++i;
    return i;
  }
  return values.size();
}

void widen(const void* from, DType dtype, std::uint64_t count, float* to) noexcept {
  if (dtype == DType::kF32 && count > 0) std::memcpy(to, from, 4 * count);
  const auto* halves = static_cast<const std::uint16_t*>(from);
  if (dtype == DType::kBF16) widen_all(halves, count, to, bits_of_bf16);
  if (dtype == DType::kF16) widen_all(halves, count, to, bits_of_f16);
}

std::uint64_t narrow(const float* from, std::uint64_t count, DType dtype, void* to) noexcept {
  if (dtype == DType::kF32 && count > 0) std::memcpy(to, from, 4 * count);
  auto* halves = static_cast<std::uint16_t*>(to);
  if (dtype == DType::kBF16) narrow_all(from, count, halves, bf16_of);
  if (dtype == DType::kF16) narrow_all(from, count, halves, f16_of);
  return first_beyond({from, count}, dtype);
}

}  // namespace deltawire
