// Places of digits that aren't 0, 16 elements at a time.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_rice_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

void find_places(const DigitMaps& maps, std::uint32_t begin, std::uint32_t end, Places& places) {
  constexpr std::uint32_t kLanes = 16;
  const __m512i one = _mm512_set1_epi32(1);
  const __m512i step = _mm512_set1_epi32(2 * kLanes);
  __m512i here =
      _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(2 * begin)),
                       _mm512_setr_epi32(2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32));
  std::uint32_t* to = places.at + 1;
  for (std::uint32_t at = begin; at < end; at += kLanes) {
    const __mmask16 nonzero = load_le<std::uint16_t>(maps.nonzero + at / 8);
    const __mmask16 negative = load_le<std::uint16_t>(maps.negative + at / 8);
    const __m512i with_sign = _mm512_mask_add_epi32(here, negative, here, one);
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(nonzero, with_sign));
    to += popcount(nonzero);
    here = _mm512_add_epi32(here, step);
  }
  places.count = static_cast<std::uint32_t>(to - (places.at + 1));
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
