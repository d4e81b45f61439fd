#include <cstdint>

#include "codecs/int8/int8_ops.h"
#include "codecs/kernels/steps.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

std::uint32_t sum_up(const Addends& x) {
  return add_up(x);
}

void encode(const Addends& x, float step, std::byte* payload) {
  // Where step is 0 all values are: 1 gives the code 0 without 0/0.
  const float divisor = step > 0 ? step : 1.0F;
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    payload[i] = static_cast<std::byte>(nearest_multiple(sum, divisor) & 0xFF);
    if (x.left != nullptr) x.left[i] = sum - code_value(payload[i]) * step;
  }
}

}  // namespace deltawire::int8::DELTAWIRE_TARGET
