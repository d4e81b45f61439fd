#include <cstdint>

#include "codecs/int8/int8_ops.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

namespace {

void encode(const Addends& x, float step, std::byte* payload) {
  // Where step is 0 all values are: 1 gives the code 0 without 0/0.
  const float divisor = step > 0 ? step : 1.0F;
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    payload[i] = code_of(sum, divisor);
    if (x.left != nullptr) x.left[i] = sum - code_value(payload[i]) * step;
  }
}

std::uint64_t find_bad_code(const std::byte* payload, std::uint64_t count, bool zeros_only) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (payload[i] == kUnusedCode || (zeros_only && payload[i] != std::byte{0})) return i;
  }
  return count;
}

template <bool kAdds>
bool decode(const std::byte* payload, std::uint64_t count, float step, float scale, float* slot) {
  bool good = true;
  for (std::uint64_t i = 0; i < count; ++i) {
    good = good && payload[i] != kUnusedCode;
    const float value = scale * (code_value(payload[i]) * step);
    slot[i] = kAdds ? slot[i] + value : value;
  }
  return good;
}

}  // namespace

extern constexpr Kernels kKernels = {encode, find_bad_code, decode<false>, decode<true>};

}  // namespace deltawire::int8::DELTAWIRE_TARGET
