#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "patch/patch_ops.h"

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

// Elements of one size, 64 at a time. A comparison gives -1 in each lane that is equal.
template <unsigned kBytes>
std::uint64_t equal_among_64(const std::byte* a, const std::byte* b) noexcept {
  const auto equal = [&](unsigned i) {
    const __m256i x = load(a + 32 * i);
    const __m256i y = load(b + 32 * i);
    if constexpr (kBytes == 1) return _mm256_cmpeq_epi8(x, y);
    if constexpr (kBytes == 2) return _mm256_cmpeq_epi16(x, y);
    if constexpr (kBytes == 4) return _mm256_cmpeq_epi32(x, y);
  };
  if constexpr (kBytes == 1) return bits_of(equal(0), equal(1));
  if constexpr (kBytes == 2) {
    return bits_of(bytes_of_halves(equal(0), equal(1)), bytes_of_halves(equal(2), equal(3)));
  }
  if constexpr (kBytes == 4) {
    return bits_of(bytes_of_words(equal(0), equal(1), equal(2), equal(3)),
                   bytes_of_words(equal(4), equal(5), equal(6), equal(7)));
  }
}

// How the classes of 64 weights are found.
struct ClassRule {
  __m128i shift;
  __m256i mask;
  __m256i top;
  __m256i last;
};

template <unsigned kBytes>
ClassRule class_rule(const Element& element, unsigned top) noexcept {
  const auto all = [](unsigned number) {
    if constexpr (kBytes == 1) return _mm256_set1_epi8(static_cast<char>(number));
    if constexpr (kBytes == 2) return _mm256_set1_epi16(static_cast<short>(number));
    if constexpr (kBytes == 4) return _mm256_set1_epi32(static_cast<int>(number));
  };
  return {_mm_cvtsi32_si128(static_cast<int>(element.exponent_shift)), all(element.exponent_mask), all(top),
          all(kClasses - 1)};
}

// Bytes with the classes of 32 weights.
template <unsigned kBytes>
__m256i classes_of_32(const std::byte* weights, const ClassRule& rule) noexcept {
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

template <unsigned kBytes>
std::uint32_t find_changes_of(const ChunkView& from, const std::byte* to, Scratch& scratch) noexcept {
  constexpr std::uint32_t kWordBytes = kWordElements * kBytes;
  const std::uint32_t whole = from.count / kWordElements;
  const std::uint32_t rest = from.count % kWordElements;
  std::uint32_t changes = 0;
  for (std::uint32_t word = 0; word < whole; ++word) {
    const std::uint64_t at = std::uint64_t{kWordBytes} * word;
    scratch.changed[word] = ~equal_among_64<kBytes>(from.at + at, to + at);
    changes += popcount(scratch.changed[word]);
  }
  if (rest != 0) {
    std::byte tails[2][kWordBytes] = {};
    const std::uint64_t at = std::uint64_t{kWordBytes} * whole;
    std::memcpy(tails[0], from.at + at, rest * kBytes);
    std::memcpy(tails[1], to + at, rest * kBytes);
    scratch.changed[whole] = ~equal_among_64<kBytes>(tails[0], tails[1]);
    changes += popcount(scratch.changed[whole]);
  }
  return changes;
}

// The active classes, one after another.
struct Active {
  __m256i wanted[kClasses];  // a class in all bytes
  std::uint64_t* members[kClasses];
  std::uint32_t* ranks[kClasses];
  std::uint32_t before[kClasses];
  unsigned count;
};

template <unsigned kBytes>
[[gnu::always_inline]] inline void find_members_in_word(const std::byte* weights, const ClassRule& rule,
                                                        std::uint32_t word, std::uint64_t inside,
                                                        Active& active) noexcept {
  const __m256i low = classes_of_32<kBytes>(weights, rule);
  const __m256i high = classes_of_32<kBytes>(weights + 32 * kBytes, rule);
  for (unsigned i = 0; i < active.count; ++i) {
    const __m256i wanted = active.wanted[i];
    const std::uint64_t members =
        bits_of(_mm256_cmpeq_epi8(low, wanted), _mm256_cmpeq_epi8(high, wanted)) & inside;
    active.members[i][word] = members;
    active.ranks[i][word] = active.before[i];
    active.before[i] += popcount(members);
  }
}

template <unsigned kBytes>
void find_members_of(const ChunkView& from, unsigned top, unsigned active_mask, Scratch& scratch) noexcept {
  constexpr std::uint32_t kWordBytes = kWordElements * kBytes;
  const ClassRule rule = class_rule<kBytes>(from.element, top);
  Active active{};
  for (unsigned c = 0; c < kClasses; ++c) {
    if ((active_mask >> c & 1) == 0) continue;
    active.wanted[active.count] = _mm256_set1_epi8(static_cast<char>(c));
    active.members[active.count] = scratch.members[c];
    active.ranks[active.count++] = scratch.ranks[c];
  }
  const std::uint32_t whole = from.count / kWordElements;
  const std::uint32_t rest = from.count % kWordElements;
  for (std::uint32_t word = 0; word < whole; ++word) {
    find_members_in_word<kBytes>(from.at + std::uint64_t{kWordBytes} * word, rule, word, ~std::uint64_t{0},
                                 active);
  }
  if (rest != 0) {
    std::byte tail[kWordBytes] = {};
    std::memcpy(tail, from.at + std::uint64_t{kWordBytes} * whole, rest * kBytes);
    find_members_in_word<kBytes>(tail, rule, whole, (std::uint64_t{1} << rest) - 1, active);
  }
  const std::uint32_t words = words_of(from.count);
  for (unsigned i = 0; i < active.count; ++i) {
    std::uint32_t* ranks = active.ranks[i];
    ranks[words] = active.before[i];
    for (std::uint32_t j = 1; j < kRankFence; ++j) ranks[words + j] = UINT32_MAX;
  }
}

}  // namespace

std::uint32_t find_changes(const ChunkView& from, const std::byte* to, Scratch& scratch) {
  if (from.element.bytes == 1) return find_changes_of<1>(from, to, scratch);
  if (from.element.bytes == 2) return find_changes_of<2>(from, to, scratch);
  return find_changes_of<4>(from, to, scratch);
}

void find_members(const ChunkView& from, unsigned top, unsigned active, Scratch& scratch) {
  if (from.element.bytes == 1) return find_members_of<1>(from, top, active, scratch);
  if (from.element.bytes == 2) return find_members_of<2>(from, top, active, scratch);
  find_members_of<4>(from, top, active, scratch);
}

}  // namespace deltawire::patch::DELTAWIRE_TARGET
