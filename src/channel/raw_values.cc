#include "channel/raw_values.h"

#include <bit>
#include <cassert>
#include <cstring>

#include "base/little_endian.h"

namespace deltawire {

void take_raw_values(Bytes values, const TensorSlot& tensor, const Target& target) noexcept {
  assert(has_raw_values(tensor) && values.size() == sizeof(float) * tensor.count);
  auto* const slot = static_cast<float*>(tensor.values);
  const auto value_at = [&](std::uint64_t i) {
    return std::bit_cast<float>(load_le<std::uint32_t>(values.data() + i * sizeof(float)));
  };
  if (target.into == Into::kAccumulate) {
    for (std::uint64_t i = 0; i < tensor.count; ++i) slot[i] += target.scale * value_at(i);
  } else if (target.scale == 1.0F) {
    std::memcpy(slot, values.data(), values.size());
  } else {
    for (std::uint64_t i = 0; i < tensor.count; ++i) slot[i] = target.scale * value_at(i);
  }
}

}  // namespace deltawire
