// Reference kernel: a chunk's bytes. Reading them is in fastsgd_decode_ref.cc.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

// Bits from the lowest on. A store always takes 8 bytes, so that no branch hangs on how full the word is:
// past the end there must be room for kStoreSlack bytes, which sizes() asks for.
class Appender {
 public:
  explicit Appender(std::byte* out) noexcept : out_(out) {}

  // REQUIRES: bits <= 56 and value < 2^bits.
  void put(std::uint64_t value, unsigned bits) noexcept {
    pending_ |= value << filled_;
    filled_ += bits;
    store_le(out_, pending_);
    const unsigned whole = filled_ / 8;
    out_ += whole;
    pending_ >>= whole * 8;
    filled_ %= 8;
  }

  // Fills the last byte with zero bits, which the last store has done; returns the address behind it.
  std::byte* finish() noexcept { return out_ + (filled_ > 0 ? 1 : 0); }

 private:
  std::byte* out_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
};

std::uint32_t gap_at(const ChunkPairs& chunk, std::uint32_t i) noexcept {
  return chunk.keys[i] - chunk.keys[i - 1] - 1;
}

std::byte* write_values(const ChunkPairs& chunk, unsigned code_bits, std::byte* out) noexcept {
  Appender bits(out);
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) {
    const std::uint32_t code = (chunk.codes[i] & ~std::uint32_t{kSignBit}) - chunk.range.lowest;
    const std::uint32_t sign = (chunk.codes[i] & kSignBit) != 0 ? 1 : 0;
    bits.put(code | sign << code_bits, code_bits + 1);
  }
  return bits.finish();
}

std::byte* write_gaps(const ChunkPairs& chunk, unsigned key_bits, unsigned flag_bits,
                      std::byte* out) noexcept {
  const GapLengths lengths(key_bits, flag_bits);
  Appender bits(out);
  for (std::uint32_t i = 1; i < chunk.pairs; ++i) {
    const std::uint32_t gap = gap_at(chunk, i);
    const std::uint8_t flag = lengths.flag_of[bit_width(gap)];
    bits.put(flag | std::uint64_t{gap} << flag_bits, flag_bits + lengths.of_flag[flag]);
  }
  return bits.finish();
}

}  // namespace

std::uint32_t write_chunk(const ChunkPairs& chunk, unsigned flag_bits, std::byte* out) {
  store_le(out, static_cast<std::uint16_t>(chunk.pairs));
  if (chunk.pairs == 0) return kEmptyHeadBytes;
  // An or of all gaps has the bits that the longest has.
  std::uint32_t gaps = 0;
  for (std::uint32_t i = 1; i < chunk.pairs; ++i) gaps |= gap_at(chunk, i);
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
