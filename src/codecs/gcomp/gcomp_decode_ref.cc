// Reference kernel: decoding a block of hostile bytes. Encoding is in gcomp_encode_ref.cc.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_decode_ops.h"
#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

// `value`, or `otherwise` where the decoded bits are all 0. By masks: zeros come in no order that a processor
// could predict.
float unless_zero(std::uint32_t bits, float value, float otherwise) noexcept {
  const std::uint32_t mask = 0U - (bits != 0 ? 1U : 0U);
  return bit_cast<float>((bit_cast<std::uint32_t>(value) & mask) |
                         (bit_cast<std::uint32_t>(otherwise) & ~mask));
}

// Hands over decoded values. A value whose bits are all 0 leaves an accumulator as it is.
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

// The lanes of a block while it is decoded, cleared of what was read.
struct Lanes {
  std::uint32_t codes[kMaxLanes];
  unsigned held[kMaxLanes];
  std::uint32_t mantissas[kMaxMantissaLanes];
  unsigned filled[kMaxMantissaLanes];
  unsigned count = 1;
  unsigned mantissa_count = 0;  // 0: mantissas are whole bytes
};

// The values between two refills.
struct Stretch {
  std::uint32_t count = 0;
  std::uint32_t exponents[kMaxStretch];
  std::uint8_t widths[kMaxStretch];
  bool escapes = false;  // kEscapeSlot stands in `rows`
  std::uint8_t rows[kMaxStretch];
};

void read_codes(const DecodeTable& table, Lanes& lanes, Stretch& stretch) noexcept {
  std::uint32_t escapes = 0;
  for (std::uint32_t i = 0; i < stretch.count; ++i) {
    const std::uint32_t lane = i & (lanes.count - 1);
    const unsigned entry = table.entry[lanes.codes[lane] & 0xFF];
    lanes.codes[lane] >>= entry & kEntryLengthMask;
    lanes.held[lane] -= entry & kEntryLengthMask;
    const unsigned row = entry >> kEntryRowShift;
    stretch.widths[i] = static_cast<std::uint8_t>(entry >> kEntryWidthShift & kEntryWidthMask);
    stretch.rows[i] = static_cast<std::uint8_t>(row);
    const std::uint32_t some = (row + kRows - 1) / kRows;  // 0 in row 0, else 1
    stretch.exponents[i] = (table.base + row) & (0U - some);
    escapes |= row == kEscapeSlot ? 1U : 0U;
  }
  stretch.escapes = escapes != 0;
}

// Whether all of them may be.
bool read_escapes(const DecodeTable& table, Stretch& stretch, const std::byte*& at) noexcept {
  bool legal = true;
  for (std::uint32_t i = stretch.count; i-- > 0;) {
    if (stretch.rows[i] != kEscapeSlot) continue;
    stretch.exponents[i] = static_cast<std::uint32_t>(*--at);
    legal &= may_escape(table, stretch.exponents[i]);
  }
  return legal;
}

void refill(Lanes& lanes, const std::byte*& at) noexcept {
  const std::byte* from = at;
  for (unsigned lane = lanes.count; lane-- > 0;) {
    // 1 if the lane needs a word. Arithmetic, because no processor predicts it.
    const std::uint32_t needs = (lanes.held[lane] - kWordBits) >> 31;
    from -= needs * kWordBytes;
    const std::uint32_t word = load_le<std::uint16_t>(from) & (0U - needs);
    lanes.codes[lane] |= word << (lanes.held[lane] & 31);
    lanes.held[lane] += needs * kWordBits;
  }
  at = from;
}

// The bits of value i of a stretch.
std::uint32_t assembled(const Stretch& stretch, std::uint32_t i, std::uint32_t sign_mantissa) noexcept {
  return stretch.exponents[i] << kMantissaBits | (sign_mantissa & kMantissaMask) |
         (sign_mantissa << 8 & kSignBit);
}

void read_mantissas(const Stretch& stretch, Lanes& lanes, const std::byte*& at,
                    std::uint32_t* bits) noexcept {
  const std::byte* from = at;
  for (std::uint32_t i = stretch.count; i-- > 0;) {
    const unsigned lane = i & (lanes.mantissa_count - 1);
    const unsigned width = stretch.widths[i];
    const unsigned filled = lanes.filled[lane];
    const std::uint32_t needs = filled < width ? 1 : 0;
    from -= needs * kMantissaWordBytes;
    const std::uint64_t word = load_le<std::uint32_t>(from) & (0U - needs);
    const std::uint64_t x = lanes.mantissas[lane] | word << filled;
    const auto low = static_cast<std::uint32_t>(x) & ((1U << width) - 1);
    lanes.mantissas[lane] = static_cast<std::uint32_t>(x >> width);
    lanes.filled[lane] = (filled - width) % kMantissaWordBits;
    bits[i] = assembled(stretch, i, low << ((kSignMantissaBits - width) & 31));
  }
  at = from;
}

// Whether no tiny value is +0, which has its own code.
bool take_mantissas(const Stretch& stretch, const std::byte*& at, std::uint32_t* bits) noexcept {
  const std::byte* from = at;
  std::uint32_t wrong = 0;
  for (std::uint32_t i = stretch.count; i-- > 0;) {
    const std::uint32_t some = stretch.widths[i] / kSignMantissaBits;  // 0 or 1
    from -= some * kSignMantissaBytes;
    bits[i] = assembled(stretch, i, load_le<std::uint32_t>(from) & 0x00FFFFFF & (0U - some));
    wrong |= some & (bits[i] == 0 ? 1U : 0U);
  }
  at = from;
  return wrong == 0;
}

// Reads a stretch downwards from `at`. REQUIRES: kStretchBytes there.
Fault decode_stretch(const DecodeTable& table, Lanes& lanes, Stretch& stretch, const std::byte*& at,
                     std::uint32_t* bits) noexcept {
  read_codes(table, lanes, stretch);
  const bool escapes = !stretch.escapes || read_escapes(table, stretch, at);
  refill(lanes, at);
  bool tiny = true;
  if (lanes.mantissa_count > 0) {
    read_mantissas(stretch, lanes, at, bits);
  } else {
    tiny = take_mantissas(stretch, at, bits);
  }
  if (!escapes) return &faults::kEscape;
  return tiny ? nullptr : &faults::kTinyZero;
}

Fault open(const std::byte* states, Lanes& lanes) noexcept {
  const std::byte* at = states;
  for (unsigned lane = 0; lane < lanes.count; ++lane, at += kStateBytes) {
    if (!open_lane(at, kWordBits, lanes.codes[lane], lanes.held[lane])) return &faults::kLaneState;
  }
  for (unsigned lane = 0; lane < lanes.mantissa_count; ++lane, at += kStateBytes) {
    if (!open_lane(at, 0, lanes.mantissas[lane], lanes.filled[lane])) return &faults::kLaneState;
  }
  return nullptr;
}

Fault close(const Lanes& lanes, const Stream& stream) noexcept {
  if (stream.at != stream.begin) return &faults::kBytesLeft;
  for (unsigned lane = 0; lane < lanes.count; ++lane) {
    if (lanes.codes[lane] != 0 || lanes.held[lane] != kWordBits) return &faults::kLaneEnd;
  }
  for (unsigned lane = 0; lane < lanes.mantissa_count; ++lane) {
    if (lanes.mantissas[lane] != 0 || lanes.filled[lane] != 0) return &faults::kLaneEnd;
  }
  return nullptr;
}

}  // namespace

Fault decode_block(const BlockBytes& body, const DecodeTable& table, const Target& target) {
  Lanes lanes;
  lanes.count = lanes_for(target.count);
  lanes.mantissa_count = table.in_bytes ? 0 : mantissa_lanes_for(lanes.count);
  Stream stream{body.at, body.at + body.stream_bytes};
  if (const Fault fault = open(stream.at, lanes); fault != nullptr) return fault;
  const std::uint32_t size = 2 * lanes.count;
  Stretch stretch;
  StreamEnd end;
  for (std::uint32_t begin = 0; begin < target.count; begin += size) {
    stretch.count = target.count - begin < size ? target.count - begin : size;
    std::uint32_t bits[kMaxStretch];
    const std::byte* const from = readable(stream, end);
    const std::byte* at = from;
    const Fault fault = decode_stretch(table, lanes, stretch, at, bits);
    if (!advance(stream, static_cast<std::uint32_t>(from - at))) return &faults::kTruncated;
    if (fault != nullptr) return fault;
    deliver(bits, stretch.count, target, target.slot + begin);
  }
  return close(lanes, stream);
}

void decode_stored(const std::byte* payload, const Target& target) {
  for (std::uint32_t at = 0; at < target.count; at += kMaxStretch) {
    const std::uint32_t count = target.count - at < kMaxStretch ? target.count - at : kMaxStretch;
    std::uint32_t bits[kMaxStretch] = {};
    if (payload != nullptr) {
      for (std::uint32_t i = 0; i < count; ++i) {
        bits[i] = load_le<std::uint32_t>(payload + (at + i) * kValueBytes);
      }
    }
    deliver(bits, count, target, target.slot + at);
  }
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
