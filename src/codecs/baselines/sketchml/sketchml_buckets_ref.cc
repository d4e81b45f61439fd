// Reference kernel: quantiles of a chunk's values, and the bucket of each (section 3.2 of the paper).
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/baselines/sketchml/sketchml_ops.h"
#include "codecs/kernels/magnitude.h"

namespace deltawire::sketchml::DELTAWIRE_TARGET {

namespace {

// One pass of a radix sort by the 8 bits from `shift` on.
void sort_by_byte(const std::uint32_t* from, std::uint32_t count, unsigned shift,
                  std::uint32_t* to) noexcept {
  std::uint32_t place[257] = {};
  for (std::uint32_t i = 0; i < count; ++i) ++place[(from[i] >> shift & 255) + 1];
  for (std::uint32_t byte = 0; byte < 256; ++byte) place[byte + 1] += place[byte];
  for (std::uint32_t i = 0; i < count; ++i) to[place[from[i] >> shift & 255]++] = from[i];
}

// The magnitudes of one sign, ascending, into chunk.sorted; returns how many there are.
std::uint32_t sort_magnitudes(const Staging& chunk, std::uint32_t sign) noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) {
    chunk.sorted[count] = magnitude_bits(chunk.values[i]);
    count += bit_cast<std::uint32_t>(chunk.values[i]) >> 31 == sign ? 1U : 0U;
  }
  for (unsigned shift = 0; shift < 32; shift += 16) {
    sort_by_byte(chunk.sorted, count, shift, chunk.spare);
    sort_by_byte(chunk.spare, count, shift + 8, chunk.sorted);
  }
  return count;
}

// Buckets that begin at the quantiles, those that begin alike being one.
void split(const std::uint32_t* sorted, std::uint32_t count, std::uint32_t most, Buckets& buckets) noexcept {
  buckets.count = 0;
  if (count == 0) return;
  const std::uint32_t wanted = count < most ? count : most;
  for (std::uint32_t i = 0; i < wanted; ++i) {
    const std::uint32_t lower = sorted[std::uint64_t{i} * count / wanted];
    if (buckets.count == 0 || lower > buckets.lower[buckets.count - 1])
      buckets.lower[buckets.count++] = lower;
  }
  for (std::uint32_t i = 0; i < buckets.count; ++i) {
    const std::uint32_t upper = i + 1 < buckets.count ? buckets.lower[i + 1] : sorted[count - 1];
    const auto low = static_cast<double>(bit_cast<float>(buckets.lower[i]));
    const auto high = static_cast<double>(bit_cast<float>(upper));
    buckets.mean[i] = static_cast<float>((low + high) / 2);
  }
}

// The last bucket that doesn't begin above the magnitude.
std::uint32_t bucket_of(const Buckets& buckets, std::uint32_t magnitude) noexcept {
  std::uint32_t low = 0;
  for (std::uint32_t high = buckets.count - 1; low < high;) {
    const std::uint32_t middle = (low + high + 1) / 2;
    if (buckets.lower[middle] <= magnitude) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

void fill_buckets(const Rules& rules, const Staging& chunk, Buckets* of_sign) {
  for (std::uint32_t sign = 0; sign < kSigns; ++sign) {
    split(chunk.sorted, sort_magnitudes(chunk, sign), rules.buckets, of_sign[sign]);
  }
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) {
    const Buckets& buckets = of_sign[bit_cast<std::uint32_t>(chunk.values[i]) >> 31];
    chunk.buckets[i] = static_cast<std::uint8_t>(bucket_of(buckets, magnitude_bits(chunk.values[i])));
  }
}

}  // namespace deltawire::sketchml::DELTAWIRE_TARGET
