#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/baselines/natural/natural_ops.h"
#include "codecs/kernels/sign_bits.h"

namespace deltawire::natural::DELTAWIRE_TARGET {

namespace {

// Bits of a magnitude are its exponent and, below, how far it lies on the way to the next power of two, in
// units of 2^-23 of that way. So a draw of 23 bits that is added carries into the exponent with exactly the
// chance that makes the mean right. Below 2^-126, where the way begins at 0, that is so, too.
std::uint32_t exponent_of(std::uint32_t magnitude, std::uint32_t draw) noexcept {
  return (magnitude + (draw >> (32 - kMantissaBits))) >> kMantissaBits;
}

float value_of(std::uint32_t exponent, bool negative) noexcept {
  return bit_cast<float>(exponent << kMantissaBits | (negative ? kSignBit : 0));
}

float value_at(const std::byte* chunk, std::uint64_t count, std::uint64_t i) noexcept {
  return value_of(static_cast<std::uint32_t>(chunk[i]), sign_bit(chunk + count, i));
}

std::uint32_t sum_up(const Addends& x) {
  return add_up(x);
}

void encode(const Addends& x, const Draws& draws, std::byte* chunk) {
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    const std::uint32_t exponent = exponent_of(magnitude_bits(sum), draw_at(draws, i));
    const bool negative = sum < 0 && exponent != 0;
    chunk[i] = static_cast<std::byte>(exponent);
    put_sign_bit(chunk + x.count, i, negative);
    if (x.left != nullptr) x.left[i] = sum - value_of(exponent, negative);
  }
}

std::uint64_t find_bad_code(const std::byte* chunk, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto exponent = static_cast<std::uint32_t>(chunk[i]);
    if (exponent > kLargestExponent || (exponent == 0 && sign_bit(chunk + count, i))) return i;
  }
  return count;
}

void decode_overwrite(const std::byte* chunk, std::uint64_t count, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) slot[i] = scale * value_at(chunk, count, i);
}

void decode_accumulate(const std::byte* chunk, std::uint64_t count, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (chunk[i] != std::byte{0}) slot[i] += scale * value_at(chunk, count, i);
  }
}

}  // namespace

extern constexpr Kernels kKernels = {sum_up, encode, find_bad_code, decode_overwrite, decode_accumulate};

}  // namespace deltawire::natural::DELTAWIRE_TARGET
