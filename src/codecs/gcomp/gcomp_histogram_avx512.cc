// The histogram for AVX-512.
#include <cstdint>

#include <immintrin.h>

#include "codecs/gcomp/gcomp_classify_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

// Neighbours are often equal: several tables, so that one sum need not wait for the other.
constexpr unsigned kTables = 4;
template <bool kWhole>
struct Counts {
  static constexpr std::uint32_t kUsed = kWhole ? 512 : kCounts;  // one level, and tiny values
  alignas(64) std::uint16_t of[kTables][kUsed];
};

// The lines of two groups. What isn't there of them is not read.
template <Keep kKeep, bool kResidual>
struct TwoLines {
  [[gnu::always_inline]] TwoLines(const Values& chunk, std::uint32_t group, unsigned share) noexcept {
#pragma GCC unroll 2
    for (unsigned i = 0; i < 2; ++i) {
      fetch_sampled(chunk, group + i, share);
      std::uint32_t begin = sampled_element(group + i, share);
      values.present[i] = first_lanes(chunk.count, begin);
      if (values.present[i] == 0) begin = 0;
      values.bits[i] = input_of<kResidual>(chunk, begin, values.present[i]);
      significance[i] = kKeep == Keep::kSignificance ? chunk.significance + begin : nullptr;
    }
  }

  Pair values;
  const float* significance[2];
};

[[gnu::always_inline]] inline __m512i counts_of(const Classified32& values, bool whole) noexcept {
  const __m512i exponents = _mm512_srli_epi16(values.exponents, kExponentShift);
  if (whole) return _mm512_mask_mov_epi16(exponents, values.tiny, all_words(kTinyCount));
  const __m512i levels = _mm512_and_si512(values.levels, all_words(kLevelWord));
  return _mm512_or_si512(_mm512_slli_epi16(levels, 8 - kLevelShift), exponents);
}

template <Keep kKeep, bool kWhole, bool kResidual>
void count_lines(const Values& chunk, Counts<kWhole>& counts) noexcept {
  const Classifier32<kKeep, kWhole> classify(chunk.rule);
  const unsigned share = sample_share(chunk.count);
  const std::uint32_t group_elements = kLineElements << share;
  for (std::uint32_t group = 0; group * group_elements < chunk.count; group += 2) {
    const TwoLines<kKeep, kResidual> lines(chunk, group, share);
    const Classified32 values =
        classify.keep(lines.values, classify.levels(lines.values, lines.significance));
    alignas(64) std::uint16_t index[2 * kLineElements];
    _mm512_store_si512(index, counts_of(values, kWhole));
    const std::uint32_t both = lines.values.present[0] & lines.values.present[1];
    if (both == 0xFFFF) [[likely]] {
      for (std::uint32_t i = 0; i < 2 * kLineElements; ++i) ++counts.of[i % kTables][index[i]];
      continue;
    }
    for (std::uint32_t i = 0; i < 2 * kLineElements; ++i) {
      if ((lines.values.present[i % 2] >> i / 2 & 1) != 0) ++counts.of[0][index[i]];
    }
  }
}

template <Keep kKeep, bool kWhole, bool kResidual>
void count_values(const Values& chunk, std::uint32_t* sums) noexcept {
  Counts<kWhole> counts = {};
  count_lines<kKeep, kWhole, kResidual>(chunk, counts);
  static_assert(kMostSample <= 0xFFFF);
  for (std::uint32_t i = 0; i < counts.kUsed; i += 32) {
    __m512i sum = _mm512_setzero_si512();
    for (const auto& table : counts.of) sum = _mm512_add_epi16(sum, _mm512_load_si512(table + i));
    _mm512_storeu_si512(sums + i, _mm512_cvtepu16_epi32(_mm512_castsi512_si256(sum)));
    _mm512_storeu_si512(sums + i + 16, _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(sum, 1)));
  }
  for (std::uint32_t i = counts.kUsed; i < kCounts; ++i) sums[i] = 0;
}

}  // namespace

void histogram(const Values& chunk, std::uint32_t* counts) {
  for_values(chunk, [&]<Keep kKeep, bool kWhole, bool kResidual>() {
    count_values<kKeep, kWhole, kResidual>(chunk, counts);
  });
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
