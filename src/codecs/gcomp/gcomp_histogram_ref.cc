// Reference kernel: what a sample of a chunk holds.
#include <cstdint>
#include <cstring>

#include "codecs/gcomp/gcomp_classify_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

template <Keep kKeep>
void count_values(const Values& chunk, std::uint32_t* counts) noexcept {
  const Classifier<kKeep> classify(chunk);
  const unsigned share = sample_share(chunk.count);
  const std::uint32_t group_elements = kLineElements << share;
  for (std::uint32_t group = 0; group * group_elements < chunk.count; ++group) {
    fetch_sampled(chunk, group, share);
    const std::uint32_t begin = sampled_element(group, share);
    for (std::uint32_t i = begin; i < begin + kLineElements && i < chunk.count; ++i) {
      const Classified value = classify(input_bits(chunk, i), i);
      ++counts[value.level * 256 + ((value.kept & kMagnitudeMask) >> kMantissaBits)];
    }
  }
}

}  // namespace

void histogram(const Values& chunk, std::uint32_t* counts) {
  std::memset(counts, 0, kCounts * sizeof *counts);
  switch (chunk.rule.keep) {
    case Keep::kLevel: return count_values<Keep::kLevel>(chunk, counts);
    case Keep::kSignificance: return count_values<Keep::kSignificance>(chunk, counts);
    case Keep::kEverything: return count_values<Keep::kEverything>(chunk, counts);
  }
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
