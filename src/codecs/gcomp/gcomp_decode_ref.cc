// Reference kernel: decoding a block of hostile bytes. Encoding is in gcomp_ref.cc.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kWordBytes = kWordBits / 8;
constexpr std::uint32_t kStateBytes = 4;
constexpr std::uint32_t kGroup = kMaxLanes;  // elements decoded at a time: the same number from every lane
constexpr std::uint32_t kGroupMantissaBytes = kGroup * kSignMantissaBits / 8;
constexpr std::uint32_t kReadAhead = 8;  // a load of a mantissa may reach this far past its first byte

// `value`, or `otherwise` where the decoded bits are all 0. By masks: zeros come in no order that a processor
// could foretell.
float unless_zero(std::uint32_t bits, float value, float otherwise) noexcept {
  const std::uint32_t mask = 0U - (bits != 0 ? 1U : 0U);
  return bit_cast<float>((bit_cast<std::uint32_t>(value) & mask) |
                         (bit_cast<std::uint32_t>(otherwise) & ~mask));
}

// Hands over up to kGroup decoded values. A value whose bits are all 0 leaves an accumulator as it is.
void deliver(const std::uint32_t* bits, std::uint32_t count, const Target& target, float* slot) noexcept {
  if (target.accumulate) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const float before = slot[i];
      slot[i] = unless_zero(bits[i], before + target.scale * bit_cast<float>(bits[i]), before);
    }
  } else if (target.scale == 1.0F) {
    std::memcpy(slot, bits, count * sizeof *slot);  // as integers: arithmetic would quieten a NaN
  } else {
    for (std::uint32_t i = 0; i < count; ++i) {
      slot[i] = unless_zero(bits[i], target.scale * bit_cast<float>(bits[i]), 0.0F);
    }
  }
}

bool has_code(const DecodeTable& table, std::uint32_t symbol) noexcept {
  return (table.coded[symbol / 64] >> (symbol % 64) & 1) != 0;
}

// The entry that an escape and the raw exponent behind it stand for; kEntryEscape if that is illegal.
std::uint32_t escaped_entry(const DecodeTable& table, std::uint32_t escape, std::uint32_t exponent) noexcept {
  const std::uint32_t level = escape >> kEntryLevelShift & 3;
  const std::uint32_t symbol = symbol_of(exponent, level);
  if (has_code(table, symbol) || (exponent == 0 && level > 1) || (exponent == 255 && level > 0)) {
    return kEntryEscape;
  }
  return make_entry(symbol, table.uniform_level, (escape & kEntryLengthMask) + kExponentBits);
}

// The bytes of a block while it is decoded.
struct Streams {
  std::uint32_t x[kMaxLanes];  // unread bits of each lane, the lowest first
  unsigned n[kMaxLanes];       // how many
  unsigned lanes = 1;
  const std::byte* words = nullptr;
  std::uint32_t word_bytes = 0;  // left
  const std::byte* mantissas = nullptr;
  std::uint32_t mantissa_bytes = 0;  // left, with the one that is begun
  unsigned mantissa_bit = 0;         // of the first byte; 0 to 7
};

// Entries of one group. Reads up to `count` words from `words` whatever there is; returns how many, and sets
// `bad` for an escape that may not be.
std::uint32_t read_symbols(Streams& streams, const DecodeTable& table, std::uint32_t count,
                           const std::byte* words, std::uint32_t* entries, bool& bad) noexcept {
  const std::byte* at = words;
  const std::uint32_t last_lane = streams.lanes - 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t lane = i & last_lane;
    std::uint32_t x = streams.x[lane];
    unsigned n = streams.n[lane];
    std::uint32_t entry = table.entry[x & 0xFF];
    if ((entry & kEntryEscape) != 0) {
      entry = escaped_entry(table, entry, x >> (entry & kEntryLengthMask) & 0xFF);
      bad |= (entry & kEntryEscape) != 0;
    }
    entries[i] = entry;
    const unsigned length = entry & kEntryLengthMask;
    x >>= length;
    n -= length;
    // 1 if the lane needs a word. In numbers, because no processor foretells it.
    const std::uint32_t refill = (n - kWordBits) >> 31;
    const std::uint32_t word = load_le<std::uint16_t>(at) & (0U - refill);
    streams.x[lane] = x | word << (n & 31);
    streams.n[lane] = n + refill * kWordBits;
    at += refill * kWordBytes;
  }
  return static_cast<std::uint32_t>(at - words) / kWordBytes;
}

// Puts sign and mantissa to the exponents of one group. Returns the bits read from `from` on, first bit
// included.
std::uint32_t read_mantissas(const std::uint32_t* entries, std::uint32_t count, const std::byte* from,
                             std::uint32_t first_bit, std::uint32_t* bits, bool& bad) noexcept {
  std::uint32_t at = first_bit;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t entry = entries[i];
    const unsigned width = entry >> kEntryWidthShift & 0x1F;
    const std::uint32_t raw = load_le<std::uint32_t>(from + at / 8) >> (at % 8) & ((1U << width) - 1);
    const std::uint32_t sign_mantissa = raw << ((kSignMantissaBits - width) & 31);
    bits[i] = (entry & kExponentMask) | (sign_mantissa & kMantissaMask) | (sign_mantissa << 8 & kSignBit);
    bad |= (entry & kEntryTiny) != 0 && raw == 0;
    at += width;
  }
  return at;
}

// The next `wanted` bytes that may be read, from the stream itself or, where that is shorter, from a copy
// with zeros behind it.
const std::byte* readable(const std::byte* from, std::uint32_t left, std::uint32_t wanted,
                          std::byte* copy) noexcept {
  if (left >= wanted) return from;
  std::memset(copy, 0, wanted);
  if (left > 0) std::memcpy(copy, from, left);
  return copy;
}

Fault decode_group(Streams& streams, const DecodeTable& table, std::uint32_t count,
                   std::uint32_t* bits) noexcept {
  constexpr std::uint32_t kMantissaRead = kGroupMantissaBytes + kReadAhead;
  std::byte word_copy[(kGroup + 1) * kWordBytes];
  std::byte mantissa_copy[kMantissaRead];
  std::uint32_t entries[kGroup];
  bool bad_escape = false;
  bool bad_tiny = false;
  const std::byte* words = readable(streams.words, streams.word_bytes, sizeof word_copy, word_copy);
  const std::uint32_t used = read_symbols(streams, table, count, words, entries, bad_escape) * kWordBytes;
  if (bad_escape) return Fault::kEscape;
  if (used > streams.word_bytes) return Fault::kTruncated;
  streams.words += used;
  streams.word_bytes -= used;

  const std::byte* from = readable(streams.mantissas, streams.mantissa_bytes, kMantissaRead, mantissa_copy);
  const std::uint32_t end = read_mantissas(entries, count, from, streams.mantissa_bit, bits, bad_tiny);
  if ((end + 7) / 8 > streams.mantissa_bytes) return Fault::kTruncated;
  streams.mantissas += end / 8;
  streams.mantissa_bytes -= end / 8;
  streams.mantissa_bit = end % 8;
  return bad_tiny ? Fault::kTinyZero : Fault::kNone;
}

// Cuts the body into lanes, words and mantissas.
Fault open(const BlockBytes& body, Streams& streams) noexcept {
  const unsigned lanes = streams.lanes;
  const std::uint32_t head = kWordBytes + lanes * kStateBytes;
  if (body.bytes < head) return Fault::kTruncated;
  const std::uint32_t rest = body.bytes - head;
  streams.word_bytes = std::uint32_t{load_le<std::uint16_t>(body.at)} * kWordBytes;
  if (streams.word_bytes > rest) return Fault::kTruncated;
  streams.words = body.at + head;
  streams.mantissas = streams.words + streams.word_bytes;
  streams.mantissa_bytes = rest - streams.word_bytes;
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const auto state = load_le<std::uint32_t>(body.at + kWordBytes + lane * kStateBytes);
    if (state >> kWordBits == 0) return Fault::kLaneState;
    streams.n[lane] = bit_width(state) - 1;
    streams.x[lane] = state ^ 1U << streams.n[lane];
  }
  return Fault::kNone;
}

Fault close(const Streams& streams) noexcept {
  if (streams.word_bytes > 0) return Fault::kWordsLeft;
  for (unsigned lane = 0; lane < streams.lanes; ++lane) {
    if (streams.x[lane] != 0 || streams.n[lane] != kWordBits) return Fault::kLaneEnd;
  }
  const std::uint32_t begun = streams.mantissa_bit > 0 ? 1 : 0;
  if (streams.mantissa_bytes != begun) return Fault::kMantissaPadding;
  if (begun == 0) return Fault::kNone;
  const auto last = static_cast<unsigned>(*streams.mantissas);
  return last >> streams.mantissa_bit == 0 ? Fault::kNone : Fault::kMantissaPadding;
}

}  // namespace

Fault decode_block(const BlockBytes& body, const DecodeTable& table, const Target& target) {
  Streams streams;
  streams.lanes = lanes_for(target.count);
  if (const Fault fault = open(body, streams); fault != Fault::kNone) return fault;
  for (std::uint32_t at = 0; at < target.count; at += kGroup) {
    const std::uint32_t count = target.count - at < kGroup ? target.count - at : kGroup;
    std::uint32_t bits[kGroup];
    if (const Fault fault = decode_group(streams, table, count, bits); fault != Fault::kNone) return fault;
    deliver(bits, count, target, target.slot + at);
  }
  return close(streams);
}

void decode_stored(const std::byte* payload, const Target& target) {
  for (std::uint32_t at = 0; at < target.count; at += kGroup) {
    const std::uint32_t count = target.count - at < kGroup ? target.count - at : kGroup;
    std::uint32_t bits[kGroup] = {};
    if (payload != nullptr) {
      for (std::uint32_t i = 0; i < count; ++i) {
        bits[i] = load_le<std::uint32_t>(payload + (at + i) * kValueBytes);
      }
    }
    deliver(bits, count, target, target.slot + at);
  }
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
