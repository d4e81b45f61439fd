// The bytes of one chunk, as kernels get them, and what decoders find wrong with it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deltawire {

struct ChunkBytes {
  const std::byte* at = nullptr;
  std::uint32_t bytes = 0;  // may be any bytes
};

enum class FaultCode : std::uint8_t { kCorrupt, kTruncated, kNoRoom };

// A codec has its own as constants in a namespace `faults`: targets agree on their addresses.
struct ChunkFault {
  const char* text = "";
  FaultCode code = FaultCode::kCorrupt;
};
using Fault = const ChunkFault*;  // null: nothing is wrong

namespace faults {

inline constexpr ChunkFault kTruncated = {"the bytes end before the chunk does", FaultCode::kTruncated};
inline constexpr ChunkFault kNoRoom = {
    "more pairs than the slot has room for: give it room for its dimension", FaultCode::kNoRoom};

}  // namespace faults

}  // namespace deltawire
