// Adam's bias corrections, without pow(), whose last bit depends on the mathematics library.
#pragma once

#include <cstdint>

namespace deltawire {

// 1 - beta^steps, by repeated squaring.
inline double bias_correction(double beta, std::uint64_t steps) noexcept {
  double power = 1;
  for (double square = beta; steps > 0; steps >>= 1, square *= square) {
    if ((steps & 1) != 0) power *= square;
  }
  return 1 - power;
}

}  // namespace deltawire
