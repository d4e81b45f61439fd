#include "base/float16.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "deltawire/tensor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace deltawire {
namespace {

constexpr std::uint32_t kHalfInfinity = 0x7C00;
constexpr std::uint32_t kExponentShift = 112U << 23;  // float32's exponent bias minus binary16's

// `addends` null: none.
void widen_all(const std::uint16_t* from, std::uint64_t count, const float* addends, float* to,
               auto convert) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto value = std::bit_cast<float>(convert(from[i]));
    to[i] = addends != nullptr ? value + addends[i] : value;
  }
}

void narrow_all(const float* from, std::uint64_t count, std::uint16_t* to, auto convert) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) to[i] = convert(std::bit_cast<std::uint32_t>(from[i]));
}

// The least magnitude that overflows, half a step above the largest value: 2^128 - 2^119 and 65,520.
constexpr std::uint32_t least_beyond(DType dtype) noexcept {
  return dtype == DType::kBF16 ? 0x7F7F8000 : 0x477FF000;
}

constexpr std::uint64_t kBlock = 4096;  // values that are converted and then looked at again, in the cache

// What was converted in whole vectors, NaNs aside.
struct Narrowed {
  std::uint64_t count = 0;
  std::uint32_t largest = 0;  // magnitude
};

#if defined(__x86_64__)
#define DELTAWIRE_HALF_VECTORS __attribute__((target("avx2,f16c")))

constexpr std::uint64_t kLanes = 8;

// Whether the functions below run on this CPU. They are here and not among the codecs' kernels, as every
// layer converts.
bool has_vectors() noexcept {
  static const bool has = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
  return has;
}

// These convert whole vectors, and say how many values that were. `addends` null: none.
DELTAWIRE_HALF_VECTORS std::uint64_t widen_bf16(const std::uint16_t* from, std::uint64_t count,
                                                const float* addends, float* to) noexcept {
  std::uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    __m256 values = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
    if (addends != nullptr) values = _mm256_add_ps(values, _mm256_loadu_ps(addends + i));
    _mm256_storeu_ps(to + i, values);
  }
  return i;
}

// The instruction reads subnormals in any mode, but it makes NaNs quiet, which the shift does not.
DELTAWIRE_HALF_VECTORS std::uint64_t widen_f16(const std::uint16_t* from, std::uint64_t count,
                                               const float* addends, float* to) noexcept {
  std::uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    const __m128i magnitudes = _mm_and_si128(halves, _mm_set1_epi16(0x7FFF));
    const __m128i nans = _mm_cmpgt_epi16(magnitudes, _mm_set1_epi16(kHalfInfinity));
    __m256 values = _mm256_cvtph_ps(halves);
    if (addends != nullptr) values = _mm256_add_ps(values, _mm256_loadu_ps(addends + i));
    _mm256_storeu_ps(to + i, values);
    if (addends != nullptr || _mm_testz_si128(nans, nans) != 0) continue;  // a sum is quiet as well
    for (std::uint64_t k = i; k < i + kLanes; ++k) to[k] = std::bit_cast<float>(bits_of_f16(from[k]));
  }
  return i;
}

// bf16_of() what is no NaN.
DELTAWIRE_HALF_VECTORS inline __m256i rounded_to_bf16(__m256i bits) noexcept {
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i below_half = _mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF));
  return _mm256_srli_epi32(_mm256_add_epi32(below_half, odd), 16);
}

DELTAWIRE_HALF_VECTORS inline std::uint32_t largest_of(__m256i lanes) noexcept {
  __m128i most = _mm_max_epu32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0x4E));
  most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 0xB1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(most));
}

DELTAWIRE_HALF_VECTORS Narrowed narrow_to_bf16(const float* from, std::uint64_t count,
                                               std::uint16_t* to) noexcept {
  const __m256i magnitude = _mm256_set1_epi32(kMagnitudeMask);
  __m256i largest = _mm256_setzero_si256();
  std::uint64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    const __m256i low = _mm256_castps_si256(_mm256_loadu_ps(from + i));
    const __m256i high = _mm256_castps_si256(_mm256_loadu_ps(from + i + kLanes));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(low, magnitude));
    largest = _mm256_max_epu32(largest, _mm256_and_si256(high, magnitude));
    const __m256i joined = _mm256_packus_epi32(rounded_to_bf16(low), rounded_to_bf16(high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_permute4x64_epi64(joined, 0xD8));
  }
  return {i, largest_of(largest)};
}

DELTAWIRE_HALF_VECTORS Narrowed narrow_to_f16(const float* from, std::uint64_t count,
                                              std::uint16_t* to) noexcept {
  const __m256i magnitude = _mm256_set1_epi32(kMagnitudeMask);
  __m256i largest = _mm256_setzero_si256();
  std::uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m256 values = _mm256_loadu_ps(from + i);
    largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(values), magnitude));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  return {i, largest_of(largest)};
}

std::uint64_t widen_in_vectors(const std::uint16_t* from, DType dtype, std::uint64_t count,
                               const float* addends, float* to) noexcept {
  if (!has_vectors()) return 0;
  return dtype == DType::kBF16 ? widen_bf16(from, count, addends, to) : widen_f16(from, count, addends, to);
}

Narrowed narrow_in_vectors(const float* from, std::uint64_t count, DType dtype, std::uint16_t* to) noexcept {
  if (!has_vectors()) return {};
  return dtype == DType::kBF16 ? narrow_to_bf16(from, count, to) : narrow_to_f16(from, count, to);
}
#else
std::uint64_t widen_in_vectors(const std::uint16_t*, DType, std::uint64_t, const float*, float*) noexcept {
  return 0;
}

Narrowed narrow_in_vectors(const float*, std::uint64_t, DType, std::uint16_t*) noexcept {
  return {};
}
#endif

// `addends` null: none.
void widen_halves(const std::uint16_t* from, DType dtype, std::uint64_t count, const float* addends,
                  float* to) noexcept {
  const std::uint64_t done = widen_in_vectors(from, dtype, count, addends, to);
  const float* const rest = addends != nullptr ? addends + done : nullptr;
  if (dtype == DType::kBF16) widen_all(from + done, count - done, rest, to + done, bits_of_bf16);
  if (dtype == DType::kF16) widen_all(from + done, count - done, rest, to + done, bits_of_f16);
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
  const std::uint32_t least = least_beyond(dtype);
  const auto is_beyond = [least](float value) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & kMagnitudeMask;
    return static_cast<unsigned>(magnitude >= least) & static_cast<unsigned>(magnitude < kInfinityBits);
  };
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::size_t end = std::min(values.size(), begin + kBlock);
    unsigned found = 0;  // without a branch for each value, so that it vectorizes
    for (std::size_t i = begin; i < end; ++i) found |= is_beyond(values[i]);
    if (found == 0) continue;
    std::size_t i = begin;
    while (is_beyond(values[i]) == 0) ++i;
    return i;
  }
  return values.size();
}

void widen(const void* from, DType dtype, std::uint64_t count, float* to) noexcept {
  assert(dtype_bytes(dtype) != 0);
  if (dtype == DType::kF32) {
    if (count > 0) std::memcpy(to, from, 4 * count);
    return;
  }
  widen_halves(static_cast<const std::uint16_t*>(from), dtype, count, nullptr, to);
}

void widen_and_add(const void* from, DType dtype, std::uint64_t count, const float* addends,
                   float* to) noexcept {
  assert(dtype_bytes(dtype) == sizeof(std::uint16_t));
  widen_halves(static_cast<const std::uint16_t*>(from), dtype, count, addends, to);
}

std::uint64_t narrow(const float* from, std::uint64_t count, DType dtype, void* to) noexcept {
  assert(dtype_bytes(dtype) != 0);
  if (dtype == DType::kF32) {
    if (count > 0) std::memcpy(to, from, 4 * count);
    return count;
  }
  auto* halves = static_cast<std::uint16_t*>(to);
  std::uint64_t first = count;
  for (std::uint64_t begin = 0; begin < count; begin += kBlock) {
    const std::uint64_t in_block = std::min(kBlock, count - begin);
    const float* block = from + begin;
    std::uint16_t* out = halves + begin;
    const auto [in_vectors, largest] = narrow_in_vectors(block, in_block, dtype, out);
    const std::uint64_t done = largest <= kInfinityBits ? in_vectors : 0;  // NaNs keep a payload there
    if (dtype == DType::kBF16) narrow_all(block + done, in_block - done, out + done, bf16_of);
    if (dtype == DType::kF16) narrow_all(block + done, in_block - done, out + done, f16_of);
    if (first < count) continue;
    const std::uint64_t within = largest < least_beyond(dtype) ? done : 0;
    const std::uint64_t beyond = within + first_beyond({block + within, in_block - within}, dtype);
    if (beyond < in_block) first = begin + beyond;
  }
  return first;
}

}  // namespace deltawire
