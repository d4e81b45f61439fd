// Reference kernel: the code of a value.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

CodeRange quantize(const PairInput& input, const Codebook& book, const Collected& pairs,
                   std::uint16_t* codes) {
  CodeRange range{kMaxCode, 0};
  for (std::uint32_t i = 0; i < pairs.pairs; ++i) {
    const auto value = bit_cast<std::uint32_t>(pairs.values[i]);
    const std::uint32_t bits = value & kMagnitudeMask;
    const std::uint32_t sign = value & ~kMagnitudeMask;
    std::uint32_t code = book.starts[bits >> kStartShift];
    code += book.values[code] > bits ? 1 : 0;  // up to b = 1.03 that is all, and no branch to guess
    while (book.values[code] > bits) ++code;
    codes[i] = static_cast<std::uint16_t>(code | sign >> 16);
    range.lowest = code < range.lowest ? code : range.lowest;
    range.highest = code > range.highest ? code : range.highest;
    if (input.residual != nullptr) {
      input.left[pairs.keys[i]] = bit_cast<float>(value) - bit_cast<float>(book.values[code] | sign);
    }
  }
  return range;
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
