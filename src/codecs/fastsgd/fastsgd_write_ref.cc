// A chunk's bytes. Reading them is in fastsgd_decode_*.cc.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

std::uint32_t write_chunk(const ChunkPairs& chunk, unsigned flag_bits, std::byte* out) {
  store_le(out, static_cast<std::uint16_t>(chunk.pairs));
  if (chunk.pairs == 0) return kEmptyHeadBytes;
  // An or of all gaps has the bits that the longest has.
  std::uint32_t gaps = 0;
  for (std::uint32_t i = 1; i < chunk.pairs; ++i) gaps |= chunk.gap_at(i);
  const auto key_bits = bit_width(gaps);
  const auto code_bits = bit_width(chunk.range.highest - chunk.range.lowest);
  store_le(out + 2, static_cast<std::uint16_t>(chunk.range.lowest | code_bits << kMaxCodeBits));
  out[4] = static_cast<std::byte>(key_bits);
  store_le(out + 5, chunk.keys[0]);
  std::byte* end = write_values(chunk, code_bits, out + kHeadBytes);
  if (key_bits > 0) end = write_gaps(chunk, key_bits, flag_bits, end);
  return static_cast<std::uint32_t>(end - out);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
