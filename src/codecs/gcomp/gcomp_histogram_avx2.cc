// The histogram for AVX2.
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "codecs/gcomp/gcomp_classify_avx2.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

// The last line, if it isn't full, or there is none.
template <Keep kKeep>
void count_last(const Values& chunk, std::uint32_t begin, std::uint32_t* counts) noexcept {
  const Classifier<kKeep> classify(chunk);
  for (std::uint32_t i = begin; i < chunk.count; ++i) {
    const Classified value = classify(input_bits(chunk, i), i);
    ++counts[value.level * 256 + ((value.kept & kMagnitudeMask) >> kMantissaBits)];
  }
}

template <Keep kKeep, bool kWhole, bool kResidual>
void count_values(const Values& chunk, std::uint32_t* counts) noexcept {
  const Classifier8<kKeep, kWhole> classify(chunk.rule);
  const unsigned share = sample_share(chunk.count);
  const std::uint32_t group_elements = kLineElements << share;
  // Neighbours are often equal: two tables, so that one sum need not wait for the other.
  std::uint32_t more[kCounts] = {};
  for (std::uint32_t group = 0; group * group_elements < chunk.count; ++group) {
    fetch_sampled(chunk, group, share);
    const std::uint32_t begin = sampled_element(group, share);
    if (begin + kLineElements > chunk.count) {  // of the last group
      count_last<kKeep>(chunk, begin, counts);
      break;
    }
    alignas(32) std::uint32_t index[kLineElements];
#pragma GCC unroll 2
    for (std::uint32_t i = 0; i < kLineElements; i += kVectorWords) {
      const float* const significance =
          kKeep == Keep::kSignificance ? chunk.significance + begin + i : nullptr;
      const Classified8 values = classify(input_of<kResidual>(chunk, begin + i), significance);
      const __m256i level = _mm256_slli_epi32(_mm256_srli_epi32(values.level, kLevelShift), 8);
      store_words(index + i, _mm256_or_si256(level, exponents_of(values.kept)));
    }
    for (std::uint32_t i = 0; i < kLineElements; i += 2) {
      ++counts[index[i]];
      ++more[index[i + 1]];
    }
  }
  for (std::uint32_t i = 0; i < kCounts; ++i) counts[i] += more[i];
}

}  // namespace

void histogram(const Values& chunk, std::uint32_t* counts) {
  std::memset(counts, 0, kCounts * sizeof *counts);
  for_rule(chunk.rule, [&]<Keep kKeep, bool kWhole>() {
    return chunk.residual != nullptr ? count_values<kKeep, kWhole, true>(chunk, counts)
                                     : count_values<kKeep, kWhole, false>(chunk, counts);
  });
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
