#include "codecs/kernels/addends.h"

namespace deltawire::addends::DELTAWIRE_TARGET {

namespace {

std::uint32_t add_up(Addends x) {
  if (x.left == nullptr) return largest_magnitude(x.in, x.residual, x.count);
  std::uint32_t largest = 0;
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    const std::uint32_t bits = magnitude_bits(sum);
    largest = bits > largest ? bits : largest;
    x.left[i] = sum;
  }
  return largest;
}

}  // namespace

extern constexpr Kernels kKernels = {add_up};

}  // namespace deltawire::addends::DELTAWIRE_TARGET
