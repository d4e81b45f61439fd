// The histogram for AVX-512.
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "codecs/gcomp/gcomp_classify_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

template <Keep kKeep, bool kWhole, bool kResidual>
void count_values(const Values& chunk, std::uint32_t* counts) noexcept {
  const Classifier16<kKeep, kWhole> classify(chunk.rule);
  const unsigned share = sample_share(chunk.count);
  const std::uint32_t group_elements = kLineElements << share;
  // Neighbours are often equal: two tables, so that one sum need not wait for the other.
  std::uint32_t more[kCounts] = {};
  for (std::uint32_t group = 0; group * group_elements < chunk.count; ++group) {
    fetch_sampled(chunk, group, share);
    const std::uint32_t begin = sampled_element(group, share);
    const __mmask16 present = first_lanes(chunk.count, begin);
    const __m512i bits = input_of<kResidual>(chunk, begin, present);
    const float* const significance = kKeep == Keep::kSignificance ? chunk.significance + begin : nullptr;
    const Classified16 values = classify(bits, significance, present);
    const __m512i level = _mm512_slli_epi32(_mm512_srli_epi32(values.level, kLevelShift), 8);
    alignas(64) std::uint32_t index[kLineElements];
    _mm512_store_si512(index, _mm512_or_si512(level, exponents_of(values.kept)));
    if (present != 0xFFFF) [[unlikely]] {
      for (std::uint32_t i = 0; begin + i < chunk.count; ++i) ++counts[index[i]];
      continue;
    }
    for (std::uint32_t i = 0; i < kLineElements; i += 2) {
      ++counts[index[i]];
      ++more[index[i + 1]];
    }
  }
  for (std::uint32_t i = 0; i < kCounts; ++i) counts[i] += more[i];
}

template <Keep kKeep, bool kWhole>
void count_values(const Values& chunk, std::uint32_t* counts) noexcept {
  return chunk.residual != nullptr ? count_values<kKeep, kWhole, true>(chunk, counts)
                                   : count_values<kKeep, kWhole, false>(chunk, counts);
}

}  // namespace

void histogram(const Values& chunk, std::uint32_t* counts) {
  std::memset(counts, 0, kCounts * sizeof *counts);
  switch (chunk.rule.keep) {
    case Keep::kLevel:
      return chunk.rule.whole() ? count_values<Keep::kLevel, true>(chunk, counts)
                                : count_values<Keep::kLevel, false>(chunk, counts);
    case Keep::kSignificance: return count_values<Keep::kSignificance, false>(chunk, counts);
    case Keep::kEverything: return count_values<Keep::kEverything, true>(chunk, counts);
  }
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
