#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "patch/patch_ops.h"
#include "patch/patch_scan_vectors_ops.h"

namespace deltawire::patch::DELTAWIRE_TARGET {

namespace {

__m256i load(const std::byte* at) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

std::uint64_t bits_of(__m256i low, __m256i high) noexcept {
  return static_cast<std::uint32_t>(_mm256_movemask_epi8(low)) |
         std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_epi8(high))} << 32;
}

// Bytes of numbers that fit, in their order.
__m256i bytes_of_halves(__m256i a, __m256i b) noexcept {
  return _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xD8);
}

__m256i bytes_of_words(__m256i a, __m256i b, __m256i c, __m256i d) noexcept {
  const __m256i mixed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
  return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

template <unsigned kBytes>
struct Words {
  struct Rule {
    __m128i shift;
    __m256i mask;
    __m256i top;
    __m256i last;
  };
  struct Classes {
    __m256i low;
    __m256i high;
  };
  using Wanted = __m256i;  // a class in all bytes

  // A comparison gives -1 in each lane that is equal.
  static std::uint64_t changed(const std::byte* a, const std::byte* b) noexcept {
    const auto equal = [&](unsigned i) {
      const __m256i x = load(a + 32 * i);
      const __m256i y = load(b + 32 * i);
      if constexpr (kBytes == 1) return _mm256_cmpeq_epi8(x, y);
      if constexpr (kBytes == 2) return _mm256_cmpeq_epi16(x, y);
      if constexpr (kBytes == 4) return _mm256_cmpeq_epi32(x, y);
    };
    if constexpr (kBytes == 1) return ~bits_of(equal(0), equal(1));
    if constexpr (kBytes == 2) {
      return ~bits_of(bytes_of_halves(equal(0), equal(1)), bytes_of_halves(equal(2), equal(3)));
    }
    if constexpr (kBytes == 4) {
      return ~bits_of(bytes_of_words(equal(0), equal(1), equal(2), equal(3)),
                      bytes_of_words(equal(4), equal(5), equal(6), equal(7)));
    }
  }

  static Rule rule(const Element& element, unsigned top) noexcept {
    const auto all = [](unsigned number) {
      if constexpr (kBytes == 1) return _mm256_set1_epi8(static_cast<char>(number));
      if constexpr (kBytes == 2) return _mm256_set1_epi16(static_cast<short>(number));
      if constexpr (kBytes == 4) return _mm256_set1_epi32(static_cast<int>(number));
    };
    return {_mm_cvtsi32_si128(static_cast<int>(element.exponent_shift)), all(element.exponent_mask), all(top),
            all(kClasses - 1)};
  }

  static Classes classes_of(const std::byte* weights, const Rule& rule) noexcept {
    return {classes_of_32(weights, rule), classes_of_32(weights + 32 * kBytes, rule)};
  }

  static Wanted wanted(unsigned c) noexcept { return _mm256_set1_epi8(static_cast<char>(c)); }

  static std::uint64_t members(const Classes& classes, Wanted wanted) noexcept {
    return bits_of(_mm256_cmpeq_epi8(classes.low, wanted), _mm256_cmpeq_epi8(classes.high, wanted));
  }

 private:
  static __m256i classes_of_32(const std::byte* weights, const Rule& rule) noexcept {
    const auto classes = [&](unsigned i) {
      const __m256i x = load(weights + 32 * i);
      if constexpr (kBytes == 1) {
        // What a shift brings from the byte above, the mask removes.
        const __m256i exponents = _mm256_and_si256(_mm256_srl_epi16(x, rule.shift), rule.mask);
        return _mm256_min_epu8(_mm256_subs_epu8(rule.top, exponents), rule.last);
      }
      if constexpr (kBytes == 2) {
        const __m256i exponents = _mm256_and_si256(_mm256_srl_epi16(x, rule.shift), rule.mask);
        return _mm256_min_epu16(_mm256_subs_epu16(rule.top, exponents), rule.last);
      }
      if constexpr (kBytes == 4) {
        const __m256i exponents = _mm256_and_si256(_mm256_srl_epi32(x, rule.shift), rule.mask);
        const __m256i below = _mm256_subs_epu16(rule.top, exponents);  // 8 bits of 32: 16 suffice
        return _mm256_min_epi32(below, rule.last);
      }
    };
    if constexpr (kBytes == 1) return classes(0);
    if constexpr (kBytes == 2) return bytes_of_halves(classes(0), classes(1));
    if constexpr (kBytes == 4) return bytes_of_words(classes(0), classes(1), classes(2), classes(3));
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
