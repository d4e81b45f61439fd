// What decoders find wrong with a chunk.
#pragma once

#include <cstdint>

namespace deltawire {

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
