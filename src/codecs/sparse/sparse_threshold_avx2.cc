// Without a histogram, whose scattered counts no vector takes: a sample says between which two numbers the
// threshold lies, most likely; what lies there is collected and looked at alone; and among the last few it is
// found by halving. Each halving counts once over what is left, so that no input takes more than 31 passes.
#include <cstdint>

#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

constexpr std::uint64_t kFew = 2048;  // that are halved as they are
constexpr std::uint64_t kSampled = 1024;
constexpr std::uint64_t kMargin = 56;  // ranks in the sample: 3.5 standard deviations at most

// Some magnitudes, all within a range.
struct Numbers {
  const std::uint32_t* at = nullptr;
  std::uint64_t count = 0;
  Range range;
};

// The threshold of the `keep` largest, or a number below it that parts them from all others as well.
// REQUIRES: 1 <= keep <= numbers.count.
Threshold halve(const Numbers& numbers, std::uint64_t keep) noexcept {
  // The least number of which fewer than `keep` are above is looked for.
  std::uint32_t low = kMagnitudeMask;
  std::uint32_t high = 0;
  for (std::uint64_t i = 0; i < numbers.count; ++i) {
    low = numbers.at[i] < low ? numbers.at[i] : low;
    high = numbers.at[i] > high ? numbers.at[i] : high;
  }
  std::uint64_t above_high = 0;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    const std::uint64_t above = count_above(numbers.at, numbers.count, middle);
    if (above == keep) return {middle, 0};
    if (above < keep) {
      high = middle;
      above_high = above;
    } else {
      low = middle + 1;
    }
  }
  return {high, keep - above_high};
}

// Where the threshold lies if the sample isn't misleading.
Range guess(const Numbers& numbers, std::uint64_t keep) noexcept {
  std::uint32_t sample[kSampled];
  for (std::uint64_t i = 0; i < kSampled; ++i) sample[i] = numbers.at[i * numbers.count / kSampled];
  const Numbers sampled{sample, kSampled, numbers.range};
  const std::uint64_t rank = keep * kSampled / numbers.count;
  Range range = numbers.range;
  if (rank > kMargin) range.high = halve(sampled, rank - kMargin).magnitude;
  if (rank + kMargin < kSampled) range.low = halve(sampled, rank + kMargin).magnitude;
  return range;
}

}  // namespace

Threshold find_threshold(const std::uint32_t* magnitudes, std::uint64_t count, std::uint64_t keep,
                         std::uint32_t* spare) {
  const Numbers all{magnitudes, count, {0, kMagnitudeMask}};
  Numbers numbers = all;
  std::uint64_t rank = keep;  // among them
  while (numbers.count > kFew) {
    const Range range = guess(numbers, rank);
    const std::uint64_t above = count_above(numbers.at, numbers.count, range.high);
    const std::uint64_t inside = collect_range(numbers.at, numbers.count, range, spare);
    const bool is_inside = above < rank && rank - above <= inside;
    if (!is_inside) return halve(all, keep);
    const bool are_fewer = inside <= numbers.count / 2;
    numbers = {spare, inside, range};
    rank -= above;
    if (!are_fewer) break;
  }
  return halve(numbers, rank);
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
