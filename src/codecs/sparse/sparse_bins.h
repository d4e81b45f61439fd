// Values in 2 bits: each goes into one of four bins, and stands for the mean of its bin
// (src/codecs/topk/spec.md, section 3).
//
// REQUIRES of all that compute: the calling thread in a FloatEnvironment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "deltawire/codec.h"

namespace deltawire::sparse {

inline constexpr unsigned kBinCount = 4;
inline constexpr unsigned kBinCodeBits = 2;
inline constexpr std::uint32_t kMeansBytes = kBinCount * sizeof(float);

struct Bins {
  float means[kBinCount] = {};
  bool of_one_each = false;  // the values are the means, in this order
  double center = 0;         // the mean of all values
  double deviation = 0;      // their standard deviation
};

constexpr std::uint32_t bin_code_bytes(std::uint32_t count) noexcept {
  return (count + 3) / 4;
}

// REQUIRES: finite values.
Bins bins_of(std::span<const float> values) noexcept;

// Writes the codes, bin_code_bytes() in all, and puts in the values' place what decoders get.
void encode_bins(std::span<float> values, const Bins& bins, std::byte* out) noexcept;

// Whether bits that aren't 0 follow the last code.
bool has_bin_padding(const std::byte* codes, std::uint32_t count) noexcept;

void decode_bins(const std::byte* codes, const Bins& bins, std::span<float> values) noexcept;

void store_means(const Bins& bins, std::byte* out) noexcept;

// Reads the means; false if one isn't finite.
bool load_means(const std::byte* at, Bins& bins) noexcept;

}  // namespace deltawire::sparse
