// For AVX-512, too: wider vectors are no faster here.
#include <cstdint>

#include <immintrin.h>

#include "base/prefetch.h"
#include "codecs/kernels/vectors_avx2.h"

namespace deltawire::addends::DELTAWIRE_TARGET {

namespace {

// From element `i` on; leaves in `i` how far whole steps went.
template <bool kAdds, bool kKeeps, bool kStreams>
[[gnu::always_inline]] inline std::uint32_t add_up_whole(Addends x, std::uint64_t& i) noexcept {
  constexpr std::uint64_t kStep = 32;
  __m256i largest[4] = {};
  for (; i + kStep <= x.count; i += kStep) {
    if (!kStreams) {  // the CPU foresees so long a pass
      prefetch_page(x.in + i, sizeof(float) * kStep);
      if (kAdds) prefetch_page(x.residual + i, sizeof(float) * kStep);
    }
    for (unsigned k = 0; k < 4; ++k) {
      const __m256 sums = eight_of<kAdds>(x, i + 8 * k);
      if (kKeeps) store_eight<kStreams>(x.left + i + 8 * k, sums);
      largest[k] = larger_of(largest[k], sums);
    }
  }
  if (kStreams) _mm_sfence();
  return largest_of_eight(
      _mm256_max_epu32(_mm256_max_epu32(largest[0], largest[1]), _mm256_max_epu32(largest[2], largest[3])));
}

template <bool kAdds>
[[gnu::always_inline]] inline std::uint32_t add_up_from(Addends x, std::uint64_t& i) noexcept {
  if (x.left == nullptr) return add_up_whole<kAdds, false, false>(x, i);
  return x.streamed ? add_up_whole<kAdds, true, true>(x, i) : add_up_whole<kAdds, true, false>(x, i);
}

std::uint32_t add_up(Addends x) {
  const auto of_few = [&x](std::uint64_t at, std::uint64_t count) {
    return count == 0 ? 0 : kernels_for(TargetId::kReference).add_up(some_of(x, at, count));
  };
  const std::uint64_t before = x.streamed ? floats_before_boundary(x.left, 64) : 0;  // whole lines
  const std::uint64_t begin = before < x.count ? before : x.count;
  std::uint64_t i = begin;
  const std::uint32_t of_whole = x.residual == nullptr ? add_up_from<false>(x, i) : add_up_from<true>(x, i);
  std::uint32_t largest = of_few(0, begin);
  largest = of_whole > largest ? of_whole : largest;
  const std::uint32_t of_rest = of_few(i, x.count - i);
  return of_rest > largest ? of_rest : largest;
}

}  // namespace

extern constexpr Kernels kKernels = {add_up};

}  // namespace deltawire::addends::DELTAWIRE_TARGET
