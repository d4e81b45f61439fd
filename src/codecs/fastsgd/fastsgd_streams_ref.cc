// Reference kernels: a chunk's three streams of bits.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

std::byte* write_values(const ChunkPairs& chunk, unsigned code_bits, std::byte* out) {
  Appender bits(out);
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) {
    const std::uint32_t code = (chunk.codes[i] & ~std::uint32_t{kSignBit}) - chunk.range.lowest;
    const std::uint32_t sign = (chunk.codes[i] & kSignBit) != 0 ? 1 : 0;
    bits.put(code | sign << code_bits, code_bits + 1);
  }
  return bits.finish();
}

std::byte* write_gaps(const ChunkPairs& chunk, unsigned key_bits, unsigned flag_bits, std::byte* out) {
  const GapLengths lengths(key_bits, flag_bits);
  Appender flags(out);
  for (std::uint32_t i = 1; i < chunk.pairs; ++i) {
    flags.put(lengths.flag_of[bit_width(chunk.gap_at(i))], flag_bits);
  }
  Appender gaps(flags.finish());
  for (std::uint32_t i = 1; i < chunk.pairs; ++i) {
    const std::uint32_t gap = chunk.gap_at(i);
    gaps.put(gap, lengths.of_flag[lengths.flag_of[bit_width(gap)]]);
  }
  return gaps.finish();
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
