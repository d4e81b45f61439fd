#include <cstdint>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/baselines/randomk/randomk_ops.h"

namespace deltawire::randomk::DELTAWIRE_TARGET {

namespace {

std::uint32_t bits_at(const std::byte* payload, std::uint64_t i) noexcept {
  return load_le<std::uint32_t>(payload + i * kValueBytes);
}

bool is_finite(std::uint32_t bits) noexcept {
  return (bits & kMagnitudeMask) < kInfinityBits;
}

bool sum_up(const Addends& x) {
  return add_up(x) < kInfinityBits;
}

bool write(const Addends& x, const Draw& draw, bool unbiased, std::byte* payload) {
  bool finite = true;
  for (std::uint64_t i = 0; i < draw.kept; ++i) {
    const Place place = place_of(draw, i);
    const float sum = sum_at(x, place.at);
    const auto bits = bit_cast<std::uint32_t>(unbiased ? sum * static_cast<float>(place.stratum) : sum);
    finite = finite && is_finite(bits);
    store_le(payload + i * kValueBytes, bits);
  }
  return finite;
}

void take_sent(float* left, const Draw& draw, const std::byte* payload) {
  for (std::uint64_t i = 0; i < draw.kept; ++i) {
    left[place_of(draw, i).at] -= bit_cast<float>(bits_at(payload, i));
  }
}

std::uint64_t find_not_finite(const std::byte* payload, std::uint64_t kept) {
  std::uint64_t i = 0;
  while (i < kept && is_finite(bits_at(payload, i))) ++i;
  return i;
}

void read(const std::byte* values, const Draw& draw, const Run& run, const Target& target) {
  for (std::uint64_t i = 0; i < run.count; ++i) {
    const float value = bit_cast<float>(bits_at(values, i));
    if (value == 0) continue;
    float& slot = target.slot[place_of(draw, run.first + i).at];
    slot = target.accumulate ? slot + target.scale * value : target.scale * value;
  }
}

}  // namespace

extern constexpr Kernels kKernels = {sum_up, write, take_sent, find_not_finite, read};

}  // namespace deltawire::randomk::DELTAWIRE_TARGET
