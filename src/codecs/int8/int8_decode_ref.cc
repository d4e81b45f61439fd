#include <cstdint>

#include "codecs/int8/int8_ops.h"

namespace deltawire::int8::DELTAWIRE_TARGET {

std::uint64_t find_bad_code(const std::byte* payload, std::uint64_t count, bool zeros_only) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (payload[i] == kUnusedCode || (zeros_only && payload[i] != std::byte{0})) return i;
  }
  return count;
}

bool decode_overwrite(const std::byte* payload, std::uint64_t count, float step, float scale, float* slot) {
  bool good = true;
  for (std::uint64_t i = 0; i < count; ++i) {
    good = good && payload[i] != kUnusedCode;
    slot[i] = scale * (code_value(payload[i]) * step);
  }
  return good;
}

bool decode_accumulate(const std::byte* payload, std::uint64_t count, float step, float scale, float* slot) {
  bool good = true;
  for (std::uint64_t i = 0; i < count; ++i) {
    good = good && payload[i] != kUnusedCode;
    slot[i] += scale * (code_value(payload[i]) * step);
  }
  return good;
}

}  // namespace deltawire::int8::DELTAWIRE_TARGET
