// The largest magnitude, and quantization, 16 values at a time.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/float_bits.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_rows_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

constexpr std::uint64_t kLanes = 16;

__mmask16 first_lanes(std::uint64_t lanes) noexcept {
  return static_cast<__mmask16>((std::uint32_t{1} << lanes) - 1);
}

__m512i magnitudes(__m512 x) noexcept {
  return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(kMagnitudeMask));
}

// The largest magnitudes of what was added so far, in four independent vectors.
struct Largest {
  __m512i of[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                   _mm512_setzero_si512()};

  [[gnu::always_inline]] void add(unsigned place, __m512 x) noexcept {
    of[place] = _mm512_max_epu32(of[place], magnitudes(x));
  }
  [[gnu::always_inline]] std::uint32_t value() const noexcept {
    return _mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_max_epu32(of[0], of[1]), _mm512_max_epu32(of[2], of[3])));
  }
};

template <bool kAdds>
__m512 load_x(const Addends& addends, std::uint64_t i) noexcept {
  const __m512 in = _mm512_loadu_ps(addends.in + i);
  return kAdds ? _mm512_add_ps(in, _mm512_loadu_ps(addends.residual + i)) : in;
}

// Fewer than 16.
template <bool kAdds, bool kKeeps>
void add_few(const Addends& addends, std::uint64_t i, std::uint64_t count, Largest& largest) noexcept {
  const __mmask16 lanes = first_lanes(count);
  __m512 x = _mm512_maskz_loadu_ps(lanes, addends.in + i);
  if (kAdds) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(lanes, addends.residual + i));
  if (kKeeps) _mm512_mask_storeu_ps(addends.sum + i, lanes, x);
  largest.add(0, x);
}

template <bool kAdds, bool kKeeps, bool kStreams>
std::uint32_t largest_of(const Addends& addends) noexcept {
  Largest largest;
  std::uint64_t i = 0;
  if (kStreams) {  // sums past the caches go to whole lines
    i = (64 - bit_cast<std::uintptr_t>(addends.sum) % 64) % 64 / sizeof(float);
    i = i < addends.count ? i : addends.count;
    add_few<kAdds, kKeeps>(addends, 0, i, largest);
  }
  for (; i + 4 * kLanes <= addends.count; i += 4 * kLanes) {
    for (unsigned place = 0; place < 4; ++place) {
      const std::uint64_t at = i + place * kLanes;
      const __m512 x = load_x<kAdds>(addends, at);
      if (kStreams) {
        _mm512_stream_ps(addends.sum + at, x);
      } else if (kKeeps) {
        _mm512_storeu_ps(addends.sum + at, x);
      }
      largest.add(place, x);
    }
  }
  for (; i < addends.count; i += kLanes) {
    const std::uint64_t left = addends.count - i;
    add_few<kAdds, kKeeps>(addends, i, left < kLanes ? left : kLanes, largest);
  }
  if (kStreams) _mm_sfence();
  return largest.value();
}

// Of 64 values: which become +1, and which -1.
struct Digits {
  __mmask64 above;
  __mmask64 below;
};

__mmask64 joined(const __mmask16 (&quarters)[4]) noexcept {
  return _mm512_kunpackd(_mm512_kunpackw(quarters[3], quarters[2]),
                         _mm512_kunpackw(quarters[1], quarters[0]));
}

// 64 values: their digits, and their new residual.
template <bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline Digits quantize_fifth(const QuantizeInput& row, std::uint32_t at) noexcept {
  const __m512 m = _mm512_set1_ps(row.scale.m);
  const __m512 high = _mm512_set1_ps(row.scale.half);
  const __m512 low = _mm512_set1_ps(-row.scale.half);
  __mmask16 above[4];
  __mmask16 below[4];
  for (unsigned i = 0; i < 4; ++i, at += kLanes) {
    __m512 x = _mm512_loadu_ps(row.in + at);
    if (kAdds) x = _mm512_add_ps(x, _mm512_loadu_ps(row.residual + at));
    above[i] = _mm512_cmp_ps_mask(x, high, _CMP_GE_OQ);
    below[i] = _mm512_cmp_ps_mask(x, low, _CMP_LE_OQ);
    if (!kKeeps) continue;
    x = _mm512_mask_sub_ps(x, above[i], x, m);
    _mm512_storeu_ps(row.left + at, _mm512_mask_add_ps(x, below[i], x, m));
  }
  return {joined(above), joined(below)};
}

struct Row {
  template <bool kAdds, bool kKeeps>
  [[gnu::always_inline]] static std::uint64_t quantize(const QuantizeInput& row, std::byte* packed,
                                                       RowDigits& digits) noexcept {
    const __m512i one = _mm512_set1_epi8(1);
    __m512i bytes = _mm512_setzero_si512();
    for (std::uint32_t p = 0; p < kDigitsPerByte; ++p) {
      const Digits fifth = quantize_fifth<kAdds, kKeeps>(row, p * kRowBytes);
      bytes = _mm512_add_epi8(_mm512_add_epi8(bytes, bytes), _mm512_add_epi8(bytes, one));
      bytes = _mm512_mask_add_epi8(bytes, fifth.above, bytes, one);
      bytes = _mm512_mask_sub_epi8(bytes, fifth.below, bytes, one);
      digits.positive[p] = fifth.above;
      digits.negative[p] = fifth.below;
    }
    _mm512_storeu_si512(packed, bytes);
    return _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(static_cast<char>(kZeroByte)));
  }
};

}  // namespace

std::uint32_t largest(const Addends& addends) {
  if (addends.residual == nullptr) return largest_of<false, false, false>(addends);
  if (addends.sum == nullptr) return largest_of<true, false, false>(addends);
  return addends.streamed ? largest_of<true, true, true>(addends) : largest_of<true, true, false>(addends);
}

Quantized quantize(const QuantizeInput& input, std::byte* packed, const DigitMaps& maps) {
  return quantize_by<Row>(input, packed, maps);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
