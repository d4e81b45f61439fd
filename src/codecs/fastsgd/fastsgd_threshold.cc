#include "codecs/fastsgd/fastsgd_threshold.h"

#include <algorithm>

namespace deltawire::fastsgd {

namespace {

constexpr std::uint32_t kAboveAll = 0x7FFFFFFF;

float sampled(const PairInput& input, std::uint64_t i) noexcept {
  return input.residual != nullptr ? input.in[i] + input.residual[i] : input.in[i];
}

// The smallest code <= last whose value is at most this magnitude; last if there is none.
std::uint32_t code_below(const CodeScale& scale, std::uint32_t bits, std::uint32_t last) noexcept {
  std::uint32_t low = 0;
  for (std::uint32_t high = last; low < high;) {
    const std::uint32_t middle = (low + high) / 2;
    if (scale.bits(middle) <= bits) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Guesses the code for a share from a sample. Bisecting the codes and counting takes less time than sorting.
std::uint32_t guess(const Kernels& kernels, const PairInput& input, const CodeScale& scale,
                    std::uint64_t wanted, std::uint32_t last, std::span<float> sample) {
  // A small sample is enough for a small part: a guess that is off by one costs one more pass over the
  // values, which is as cheap.
  constexpr std::uint64_t kFew = 512;
  const std::uint64_t numbers_taken =
      std::min<std::uint64_t>(std::max<std::uint64_t>(input.count / 64, kFew), sample.size());
  const std::uint64_t stride = input.count / numbers_taken + 1;
  std::size_t taken = 0;
  for (std::uint64_t i = 0; i < input.count; i += stride) sample[taken++] = sampled(input, i);
  const PairInput of_sample{.in = sample.data(), .count = taken};
  const std::uint64_t needed = std::min<std::uint64_t>((wanted - 1) / stride + 1, taken);
  std::uint32_t low = 0;
  for (std::uint32_t high = last; low < high;) {
    const std::uint32_t middle = (low + high) / 2;
    if (kernels.count_at_least(of_sample, scale.bits(middle), kAboveAll).low >= needed) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace

std::uint32_t last_code(const CodeScale& scale, std::uint32_t limit) noexcept {
  std::uint32_t low = 0;  // bits(0) is the sum, not 0
  for (std::uint32_t high = limit; low < high;) {
    const std::uint32_t middle = (low + high + 1) / 2;
    if (scale.bits(middle) > 0) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

std::uint32_t code_for_share(const Kernels& kernels, const PairInput& input, const CodeScale& scale,
                             std::uint64_t wanted, std::uint32_t last, std::span<float> sample) {
  std::uint32_t low = 0;  // the answer lies in [low, high]
  std::uint32_t high = last;
  std::uint32_t code = guess(kernels, input, scale, wanted, last, sample);
  for (std::uint32_t step = 1; low < high; step *= 2) {
    const Counts counts =
        kernels.count_at_least(input, scale.bits(code), code > 0 ? scale.bits(code - 1) : kAboveAll);
    if (counts.low < wanted) {
      low = std::min(code + 1, high);
      code = low + std::min(step - 1, (high - low) / 2);
    } else if (counts.high < wanted) {
      return code;
    } else {
      high = code - 1;
      code = high - std::min(step - 1, (high - low) / 2);
    }
  }
  return low;
}

std::uint32_t code_for_all(const Kernels& kernels, const PairInput& input, const CodeScale& scale,
                           std::uint32_t last, std::uint32_t least) {
  const std::uint32_t cut = scale.bits(last);
  return code_below(scale, least >= cut ? least : kernels.smallest(input, cut), last);
}

Codebook make_codebook(const CodeScale& scale, std::uint32_t last, std::span<std::uint32_t> values,
                       std::span<std::uint16_t> starts) noexcept {
  for (std::uint32_t code = 0; code <= last; ++code) values[code] = scale.bits(code);
  std::uint32_t code = 0;
  const std::uint32_t lowest = values[last] >> kStartShift;
  for (std::uint32_t range = (values[0] >> kStartShift) + 1; range-- > lowest;) {
    const std::uint32_t largest = ((range + 1) << kStartShift) - 1;
    while (values[code] > largest) ++code;
    starts[range] = static_cast<std::uint16_t>(code);
  }
  return Codebook{values.data(), starts.data(), last};
}

}  // namespace deltawire::fastsgd
