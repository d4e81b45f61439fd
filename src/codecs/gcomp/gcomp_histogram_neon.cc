// The histogram for NEON.
#include <cstdint>

#include <arm_neon.h>

#include "codecs/gcomp/gcomp_classify_neon.h"
#include "codecs/gcomp/gcomp_walks_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

struct Indices {
  alignas(16) std::uint16_t of[kLineElements];
};

template <Keep kKeep, bool kWhole, bool kResidual>
void count_values(const Values& chunk, std::uint32_t* counts) noexcept {
  static_assert(kLineElements == kTogether);
  const Classifier16<kKeep, kWhole> classify(chunk.rule);
  count_by<kKeep>(
      chunk,
      [&](std::uint32_t begin) {
        Words bits;
        input_of<kResidual>(chunk, begin, bits);
        const float* const significance = kKeep == Keep::kSignificance ? chunk.significance + begin : nullptr;
        const Classified16 values = classify(bits, significance);
        // Exponents below levels; their order is nobody's.
        Indices index;
        vst1q_u16(index.of, vreinterpretq_u16_u8(vzip1q_u8(values.exponents, values.levels)));
        vst1q_u16(index.of + kLineElements / 2,
                  vreinterpretq_u16_u8(vzip2q_u8(values.exponents, values.levels)));
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
