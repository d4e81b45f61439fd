// The largest magnitude, and quantization, 8 values at a time.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/float_bits.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_rows_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

constexpr std::uint64_t kLanes = 8;

// The largest magnitudes of what was added so far, in four independent vectors.
struct Largest {
  __m256i of[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                   _mm256_setzero_si256()};

  [[gnu::always_inline]] void add(unsigned place, __m256 x) noexcept {
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(kMagnitudeMask));
    of[place] = _mm256_max_epu32(of[place], bits);
  }
  [[gnu::always_inline]] std::uint32_t value() const noexcept {
    alignas(32) std::uint32_t lanes[kLanes];
    const __m256i all = _mm256_max_epu32(_mm256_max_epu32(of[0], of[1]), _mm256_max_epu32(of[2], of[3]));
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), all);
    std::uint32_t largest = 0;
    for (const std::uint32_t lane : lanes) largest = lane > largest ? lane : largest;
    return largest;
  }
};

// `count` of the addends, from `at` on, by the reference's kernel: those that fill no vector.
std::uint32_t largest_of_few(const Addends& addends, std::uint64_t at, std::uint64_t count) noexcept {
  return kernels_for(TargetId::kReference)
      .largest({addends.in + at, addends.residual != nullptr ? addends.residual + at : nullptr,
                addends.sum != nullptr ? addends.sum + at : nullptr, count, false});
}

template <bool kAdds, bool kKeeps, bool kStreams>
std::uint32_t largest_of(const Addends& addends) noexcept {
  Largest largest;
  std::uint64_t begin = 0;
  if (kStreams) {  // sums past the caches go to whole lines
    begin = (64 - bit_cast<std::uintptr_t>(addends.sum) % 64) % 64 / sizeof(float);
    begin = begin < addends.count ? begin : addends.count;
  }
  std::uint64_t i = begin;
  for (; i + 4 * kLanes <= addends.count; i += 4 * kLanes) {
    for (unsigned place = 0; place < 4; ++place) {
      const std::uint64_t at = i + place * kLanes;
      __m256 x = _mm256_loadu_ps(addends.in + at);
      if (kAdds) x = _mm256_add_ps(x, _mm256_loadu_ps(addends.residual + at));
      if (kStreams) {
        _mm256_stream_ps(addends.sum + at, x);
      } else if (kKeeps) {
        _mm256_storeu_ps(addends.sum + at, x);
      }
      largest.add(place, x);
    }
  }
  if (kStreams) _mm_sfence();
  const std::uint32_t of_rest[] = {largest.value(), largest_of_few(addends, 0, begin),
                                   largest_of_few(addends, i, addends.count - i)};
  std::uint32_t most = 0;
  for (const std::uint32_t each : of_rest) most = each > most ? each : most;
  return most;
}

// Eight values: -1, 0 or +1 in each 32-bit lane; their new residual is stored.
template <bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline __m256i quantize_eight(const QuantizeInput& row, std::uint32_t at) noexcept {
  const __m256 m = _mm256_set1_ps(row.scale.m);
  __m256 x = _mm256_loadu_ps(row.in + at);
  if (kAdds) x = _mm256_add_ps(x, _mm256_loadu_ps(row.residual + at));
  const __m256 above = _mm256_cmp_ps(x, _mm256_set1_ps(row.scale.half), _CMP_GE_OQ);
  const __m256 below = _mm256_cmp_ps(x, _mm256_set1_ps(-row.scale.half), _CMP_LE_OQ);
  if (kKeeps) {  // x - 0 is x, and so is x + -0: bit for bit
    const __m256 taken = _mm256_sub_ps(x, _mm256_and_ps(above, m));
    const __m256 given = _mm256_blendv_ps(_mm256_set1_ps(-0.0F), m, below);
    _mm256_storeu_ps(row.left + at, _mm256_add_ps(taken, given));
  }
  return _mm256_sub_epi32(_mm256_castps_si256(below), _mm256_castps_si256(above));
}

// 32 values: -1, 0 or +1 in each byte, in their order.
template <bool kAdds, bool kKeeps>
[[gnu::always_inline]] inline __m256i quantize_half(const QuantizeInput& row, std::uint32_t at) noexcept {
  __m256i digits[4];
  for (std::uint32_t i = 0; i < 4; ++i) {
    digits[i] = quantize_eight<kAdds, kKeeps>(row, at + i * static_cast<std::uint32_t>(kLanes));
  }
  // packs leaves the groups of four digits in the order 0, 2, 4, 6, 1, 3, 5, 7.
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(digits[0], digits[1]), _mm256_packs_epi32(digits[2], digits[3]));
  return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

std::uint64_t sign_bits(__m256i bytes) noexcept {
  return static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
}

struct Row {
  template <bool kAdds, bool kKeeps>
  [[gnu::always_inline]] static std::uint64_t quantize(const QuantizeInput& row, std::byte* packed,
                                                       RowDigits& digits) noexcept {
    const __m256i zero_byte = _mm256_set1_epi8(static_cast<char>(kZeroByte));
    __m256i bytes[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (std::uint32_t p = 0; p < kDigitsPerByte; ++p) {
      digits.positive[p] = 0;
      digits.negative[p] = 0;
      for (std::uint32_t half = 0; half < 2; ++half) {
        const __m256i q = quantize_half<kAdds, kKeeps>(row, p * kRowBytes + half * 32);
        bytes[half] =
            _mm256_add_epi8(_mm256_add_epi8(bytes[half], bytes[half]), _mm256_add_epi8(bytes[half], q));
        digits.positive[p] |= sign_bits(_mm256_cmpgt_epi8(q, _mm256_setzero_si256())) << (half * 32);
        digits.negative[p] |= sign_bits(q) << (half * 32);
      }
    }
    std::uint64_t zeros = 0;
    for (std::uint32_t half = 0; half < 2; ++half) {
      const __m256i sum = _mm256_add_epi8(bytes[half], zero_byte);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed + half * 32), sum);
      zeros |= sign_bits(_mm256_cmpeq_epi8(sum, zero_byte)) << (half * 32);
    }
    return zeros;
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
