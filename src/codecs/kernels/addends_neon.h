// Sums and their largest magnitude, four at a time. NEON has no store past the caches that a compiler offers.
#pragma once

#include <cstdint>

#include <arm_neon.h>

#include "base/float_bits.h"
#include "codecs/kernels/addends.h"

namespace deltawire {

template <bool kAdds>
[[gnu::always_inline]] inline float32x4_t four_of(const Addends& x, std::uint64_t i) noexcept {
  const float32x4_t in = vld1q_f32(x.in + i);
  return kAdds ? vaddq_f32(in, vld1q_f32(x.residual + i)) : in;
}

[[gnu::always_inline]] inline uint32x4_t larger_of(uint32x4_t largest, float32x4_t x) noexcept {
  return vmaxq_u32(largest, vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(kMagnitudeMask)));
}

// Leaves in `i` how far whole steps went.
template <bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline std::uint32_t add_up_whole(const Addends& x, std::uint64_t& i) noexcept {
  constexpr std::uint64_t kStep = 16;
  uint32x4_t largest[4] = {vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0)};
  for (; i + kStep <= x.count; i += kStep) {
    for (unsigned k = 0; k < 4; ++k) {
      const float32x4_t sum = four_of<kAdds>(x, i + 4 * k);
      if (kKeeps) vst1q_f32(x.left + i + 4 * k, sum);
      largest[k] = larger_of(largest[k], sum);
    }
  }
  return vmaxvq_u32(vmaxq_u32(vmaxq_u32(largest[0], largest[1]), vmaxq_u32(largest[2], largest[3])));
}

// What add_up() does.
[[gnu::always_inline]] inline std::uint32_t add_up_neon(const Addends& x) noexcept {
  std::uint64_t i = 0;
  std::uint32_t largest = 0;
  if (x.residual == nullptr) {
    largest = x.left == nullptr ? add_up_whole<false, false>(x, i) : add_up_whole<false, true>(x, i);
  } else {
    largest = x.left == nullptr ? add_up_whole<true, false>(x, i) : add_up_whole<true, true>(x, i);
  }
  const std::uint32_t of_rest = add_up(some_of(x, i, x.count - i));
  return of_rest > largest ? of_rest : largest;
}

}  // namespace deltawire
