// The bytes of one chunk, as kernels get them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deltawire {

struct ChunkBytes {
  const std::byte* at = nullptr;
  std::uint32_t bytes = 0;  // may be any bytes
};

}  // namespace deltawire
