#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "patch/patch_ops.h"
#include "patch/patch_scan_vectors_ops.h"

namespace deltawire::patch::DELTAWIRE_TARGET {

namespace {

__m512i load(const std::byte* at) noexcept {
  return _mm512_loadu_si512(at);
}

template <unsigned kBytes>
struct Words {
  struct Rule {
    __m128i shift;
    __m512i mask;
    __m512i top;
    __m512i last;
  };
  using Classes = __m512i;  // of 64 weights, in their order
  using Wanted = __m512i;   // a class in all bytes

  static std::uint64_t changed(const std::byte* a, const std::byte* b) noexcept {
    std::uint64_t changed = 0;
    for (unsigned i = 0; i < kBytes; ++i) {
      const __m512i x = load(a + 64 * i);
      const __m512i y = load(b + 64 * i);
      if constexpr (kBytes == 1) changed = _mm512_cmpneq_epi8_mask(x, y);
      if constexpr (kBytes == 2) changed |= std::uint64_t{_mm512_cmpneq_epi16_mask(x, y)} << 32 * i;
      if constexpr (kBytes == 4) changed |= std::uint64_t{_mm512_cmpneq_epi32_mask(x, y)} << 16 * i;
    }
    return changed;
  }

  static Rule rule(const Element& element, unsigned top) noexcept {
    const auto all = [](unsigned number) {
      if constexpr (kBytes == 1) return _mm512_set1_epi8(static_cast<char>(number));
      if constexpr (kBytes == 2) return _mm512_set1_epi16(static_cast<short>(number));
      if constexpr (kBytes == 4) return _mm512_set1_epi32(static_cast<int>(number));
    };
    return {_mm_cvtsi32_si128(static_cast<int>(element.exponent_shift)), all(element.exponent_mask), all(top),
            all(kClasses - 1)};
  }

  static Classes classes_of(const std::byte* weights, const Rule& rule) noexcept {
    if constexpr (kBytes == 1) {
      // What a shift brings from the byte above, the mask removes.
      const __m512i exponents = _mm512_and_si512(_mm512_srl_epi16(load(weights), rule.shift), rule.mask);
      return _mm512_min_epu8(_mm512_subs_epu8(rule.top, exponents), rule.last);
    }
    if constexpr (kBytes == 2) {
      const auto classes = [&](unsigned i) {
        const __m512i x = load(weights + 64 * i);
        const __m512i exponents = _mm512_and_si512(_mm512_srl_epi16(x, rule.shift), rule.mask);
        return _mm512_cvtepi16_epi8(_mm512_min_epu16(_mm512_subs_epu16(rule.top, exponents), rule.last));
      };
      return _mm512_inserti64x4(_mm512_castsi256_si512(classes(0)), classes(1), 1);
    }
    if constexpr (kBytes == 4) {
      const auto classes = [&](unsigned i) {
        const __m512i x = load(weights + 64 * i);
        const __m512i exponents = _mm512_and_si512(_mm512_srl_epi32(x, rule.shift), rule.mask);
        const __m512i below = _mm512_subs_epu16(rule.top, exponents);  // 8 bits of 32: 16 suffice
        return _mm512_cvtepi32_epi8(_mm512_min_epi32(below, rule.last));
      };
      const __m512i first = _mm512_inserti32x4(_mm512_castsi128_si512(classes(0)), classes(1), 1);
      return _mm512_inserti32x4(_mm512_inserti32x4(first, classes(2), 2), classes(3), 3);
    }
  }

  static Wanted wanted(unsigned c) noexcept { return _mm512_set1_epi8(static_cast<char>(c)); }

  static std::uint64_t members(Classes classes, Wanted wanted) noexcept {
    return _mm512_cmpeq_epi8_mask(classes, wanted);
  }
};

}  // namespace

FoundChanges find_changes(const ChunkView& from, const std::byte* to, Scratch& scratch) {
  return find_changes_by<Words>(from, to, scratch);
}

std::uint64_t find_members(const ChunkView& from, unsigned top, unsigned active, const std::byte* hashed,
                           Scratch& scratch) {
  return find_members_by<Words>(from, top, active, hashed, scratch);
}

}  // namespace deltawire::patch::DELTAWIRE_TARGET
