#include "codecs/sparse/sparse_bins.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/bit_functions.h"
#include "base/little_endian.h"

namespace deltawire::sparse {

namespace {

// What lies between the bins: 6 standard deviations are four widths of 1.5, of which the authors' bin 2 has
// the center in its middle; the outer bins take all that lies beyond.
constexpr double kInner = 0.75;
constexpr double kOuter = 2.25;

unsigned bin_of(float value, const Bins& bins) noexcept {
  const double apart = double{value} - bins.center;
  if (apart > kInner * bins.deviation) return 3;
  if (apart >= -kInner * bins.deviation) return 2;
  return apart > -kOuter * bins.deviation ? 1 : 0;
}

}  // namespace

Bins bins_of(std::span<const float> values) noexcept {
  Bins bins;
  if (values.size() <= kBinCount) {
    std::ranges::copy(values, bins.means);
    bins.of_one_each = true;
    return bins;
  }
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const float value : values) sum += value;
  bins.center = sum / count;
  double squares = 0;
  for (const float value : values) {
    const double apart = double{value} - bins.center;
    squares += apart * apart;
  }
  bins.deviation = std::sqrt(squares / (count - 1));
  double sums[kBinCount] = {};
  std::uint64_t counts[kBinCount] = {};
  for (const float value : values) {
    const unsigned bin = bin_of(value, bins);
    sums[bin] += value;
    ++counts[bin];
  }
  for (unsigned bin = 0; bin < kBinCount; ++bin) {
    if (counts[bin] > 0) bins.means[bin] = static_cast<float>(sums[bin] / static_cast<double>(counts[bin]));
  }
  return bins;
}

void encode_bins(std::span<float> values, const Bins& bins, std::byte* out) noexcept {
  std::fill_n(out, bin_code_bytes(static_cast<std::uint32_t>(values.size())), std::byte{0});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const unsigned bin = bins.of_one_each ? static_cast<unsigned>(i) : bin_of(values[i], bins);
    out[i / 4] |= static_cast<std::byte>(bin << i % 4 * kBinCodeBits);
    values[i] = bins.means[bin];
  }
}

bool has_bin_padding(const std::byte* codes, std::uint32_t count) noexcept {
  return count % 4 != 0 && std::to_integer<unsigned>(codes[count / 4]) >> count % 4 * kBinCodeBits != 0;
}

void decode_bins(const std::byte* codes, const Bins& bins, std::span<float> values) noexcept {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = bins.means[std::to_integer<unsigned>(codes[i / 4]) >> i % 4 * kBinCodeBits & 3];
  }
}

void store_means(const Bins& bins, std::byte* out) noexcept {
  for (unsigned bin = 0; bin < kBinCount; ++bin) {
    store_le(out + bin * sizeof(float), std::bit_cast<std::uint32_t>(bins.means[bin]));
  }
}

bool load_means(const std::byte* at, Bins& bins) noexcept {
  for (unsigned bin = 0; bin < kBinCount; ++bin) {
    bins.means[bin] = std::bit_cast<float>(load_le<std::uint32_t>(at + bin * sizeof(float)));
  }
  return std::ranges::all_of(bins.means, [](float mean) {
    return (std::bit_cast<std::uint32_t>(mean) & kMagnitudeMask) < kInfinityBits;
  });
}

}  // namespace deltawire::sparse
