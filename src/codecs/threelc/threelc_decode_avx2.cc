// Decoding a chunk of hostile bytes: what mode it has, and whether all of it is there. Vector kernels know
// chunks without a fault; whatever else there may be is left to the reference, which says what is wrong.
#include <cstddef>
#include <cstdint>

#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_unpack_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

Fault decode_chunk(const ChunkBytes& chunk, const DecodeTarget& target) {
  if (chunk.bytes == 0 || target.zeros_only) return decode_as_reference(chunk, target);
  switch (static_cast<std::uint8_t>(chunk.at[0])) {
    case static_cast<std::uint8_t>(ChunkMode::kBase3):
      return chunk.bytes == 1 + packed_bytes(target.count) ? decode_packed(chunk.at + 1, target)
                                                           : decode_as_reference(chunk, target);
    case static_cast<std::uint8_t>(ChunkMode::kZeroRuns): return decode_runs(chunk, target);
    case static_cast<std::uint8_t>(ChunkMode::kRice): return decode_rice(chunk, target);
    default: return Fault::kUnknownMode;
  }
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
