// Four at a time. NEON has no store past the caches that a compiler offers.
#include <cstdint>

#include <arm_neon.h>

#include "codecs/kernels/addends.h"

namespace deltawire::addends::DELTAWIRE_TARGET {

namespace {

// Leaves in `i` how far whole steps went.
template <bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline std::uint32_t add_up_whole(Addends x, std::uint64_t& i) noexcept {
  constexpr std::uint64_t kStep = 16;
  uint32x4_t largest[4] = {vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0)};
  for (; i + kStep <= x.count; i += kStep) {
    for (unsigned k = 0; k < 4; ++k) {
      float32x4_t sum = vld1q_f32(x.in + i + 4 * k);
      if (kAdds) sum = vaddq_f32(sum, vld1q_f32(x.residual + i + 4 * k));
      if (kKeeps) vst1q_f32(x.left + i + 4 * k, sum);
      largest[k] = vmaxq_u32(largest[k], vandq_u32(vreinterpretq_u32_f32(sum), vdupq_n_u32(kMagnitudeMask)));
    }
  }
  return vmaxvq_u32(vmaxq_u32(vmaxq_u32(largest[0], largest[1]), vmaxq_u32(largest[2], largest[3])));
}

std::uint32_t add_up(Addends x) {
  std::uint64_t i = 0;
  std::uint32_t largest = 0;
  if (x.residual == nullptr) {
    largest = x.left == nullptr ? add_up_whole<false, false>(x, i) : add_up_whole<false, true>(x, i);
  } else {
    largest = x.left == nullptr ? add_up_whole<true, false>(x, i) : add_up_whole<true, true>(x, i);
  }
  const std::uint32_t of_rest = kernels_for(TargetId::kReference).add_up(some_of(x, i, x.count - i));
  return of_rest > largest ? of_rest : largest;
}

}  // namespace

extern constexpr Kernels kKernels = {add_up};

}  // namespace deltawire::addends::DELTAWIRE_TARGET
