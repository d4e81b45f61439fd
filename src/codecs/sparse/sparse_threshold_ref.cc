// Reference kernel: how large the largest are.
#include <cstdint>
#include <cstring>

#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

// Radix selection, from the highest of three digits down: linear whatever the values are.
Threshold find_threshold(const std::uint32_t* magnitudes, std::uint64_t count, std::uint64_t keep,
                         std::uint32_t*) {
  struct Digit {
    unsigned shift;
    std::uint32_t values;
  };
  constexpr Digit kDigits[] = {{20, 2048}, {10, 1024}, {0, 1024}};  // a magnitude has 31 bits
  std::uint32_t counts[2048];
  std::uint32_t threshold = 0;  // its digits so far
  for (const auto& [shift, values] : kDigits) {
    std::memset(counts, 0, sizeof counts);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint32_t rest = (magnitudes[i] - threshold) >> shift;
      if (rest < values) ++counts[rest];  // what is smaller than the digits so far wraps round
    }
    std::uint32_t digit = values - 1;
    while (counts[digit] < keep) keep -= counts[digit--];
    threshold += digit << shift;
  }
  return {threshold, keep};
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
