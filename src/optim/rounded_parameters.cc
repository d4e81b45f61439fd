// The significance of gradients to parameters that every step rounds to 16 bits.
#include "base/float_environment.h"
#include "deltawire/optimizer.h"

namespace deltawire {

void count_rounding_to(DType parameters, std::span<float> significance) noexcept {
  if (parameters != DType::kBF16 && parameters != DType::kF16) return;
  const FloatEnvironment environment;
  const float factor = parameters == DType::kBF16 ? 0x1p16F : 0x1p13F;
  for (float& value : significance) value *= factor;
}

}  // namespace deltawire
