// The histogram for AVX2.
#include <cstdint>

#include <immintrin.h>

#include "codecs/gcomp/gcomp_classify_avx2.h"
#include "codecs/gcomp/gcomp_walks_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

struct Line {
  alignas(32) std::uint32_t of[kLineElements];
};

template <Keep kKeep, bool kWhole, bool kResidual>
void count_values(const Values& chunk, std::uint32_t* counts) noexcept {
  const Classifier8<kKeep, kWhole> classify(chunk.rule);
  count_by<kKeep>(
      chunk,
      [&](std::uint32_t begin) {
        Line index;
#pragma GCC unroll 2
        for (std::uint32_t i = 0; i < kLineElements; i += kVectorWords) {
          const float* const significance =
              kKeep == Keep::kSignificance ? chunk.significance + begin + i : nullptr;
          const Classified8 values = classify(input_of<kResidual>(chunk, begin + i), significance);
          const __m256i level = _mm256_slli_epi32(_mm256_srli_epi32(values.level, kLevelShift), 8);
          store_words(index.of + i, _mm256_or_si256(level, exponents_of(values.kept)));
        }
        return index;
      },
      counts);
}

}  // namespace

void histogram(const Values& chunk, std::uint32_t* counts) {
  for_values(chunk, [&]<Keep kKeep, bool kWhole, bool kResidual>() {
    count_values<kKeep, kWhole, kResidual>(chunk, counts);
  });
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
