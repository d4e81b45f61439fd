// A chunk's head, for every target.
#include <cstddef>
#include <cstdint>

#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

Fault read_head(const ChunkBytes& chunk, bool is_first, bool is_last, Head& head) {
  if (chunk.bytes < kEmptyHeadBytes) return Fault::kTruncated;
  head.pairs = load_le<std::uint16_t>(chunk.at);
  if (head.pairs > kChunkPairs || (!is_last && head.pairs != kChunkPairs)) return Fault::kPairCount;
  if (head.pairs == 0) {
    if (!is_first) return Fault::kPairCount;
    return chunk.bytes > kEmptyHeadBytes ? Fault::kTrailingBytes : Fault::kNone;
  }
  if (chunk.bytes < kHeadBytes) return Fault::kTruncated;
  const std::uint32_t codes = load_le<std::uint16_t>(chunk.at + 2);
  head.base = codes & kMaxCode;
  head.code_bits = codes >> kMaxCodeBits;
  head.key_bits = static_cast<unsigned>(chunk.at[4]);
  head.first_key = load_le<std::uint32_t>(chunk.at + 5);
  return head.code_bits > kMaxCodeBits || head.key_bits > kMaxKeyBits ? Fault::kHead : Fault::kNone;
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
