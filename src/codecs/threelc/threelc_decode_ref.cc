// Reference kernel: decoding a chunk of hostile bytes. Encoding is in threelc_ref.cc.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

constexpr base3::DigitTable kDigits = base3::make_digit_table();

// Gives back the packed bytes of a chunk piece by piece, zero runs expanded, and holds the coding to its one
// valid form: runs are cut greedily in 14s, so after a zero code that wasn't full comes something else.
class PackedBytes {
 public:
  PackedBytes(const std::byte* in, std::uint32_t bytes, bool runs) noexcept
      : in_(in), bytes_(bytes), runs_(runs) {}

  Fault next(std::byte* out, std::uint32_t wanted) noexcept {
    return runs_ ? next_of_runs(out, wanted) : next_plain(out, wanted);
  }

  Fault finish() const noexcept {
    if (zeros_left_ > 0) return Fault::kRunTooLong;
    return at_ < bytes_ ? Fault::kTrailingBytes : Fault::kNone;
  }

 private:
  Fault next_plain(std::byte* out, std::uint32_t wanted) noexcept {
    if (wanted > bytes_ - at_) return Fault::kTruncated;
    std::memcpy(out, in_ + at_, wanted);
    at_ += wanted;
    std::uint32_t largest = 0;
    for (std::uint32_t i = 0; i < wanted; ++i) {
      const auto value = static_cast<std::uint32_t>(out[i]);
      largest = value > largest ? value : largest;
    }
    return largest > kMaxPackedByte ? Fault::kBadByte : Fault::kNone;
  }

  Fault next_of_runs(std::byte* out, std::uint32_t wanted) noexcept {
    for (std::uint32_t done = 0; done < wanted;) {
      if (zeros_left_ > 0) {
        const std::uint32_t room = wanted - done;
        const std::uint32_t zeros = zeros_left_ < room ? zeros_left_ : room;
        std::memset(out + done, static_cast<int>(kZeroByte), zeros);
        zeros_left_ -= zeros;
        done += zeros;
        continue;
      }
      if (at_ == bytes_) return Fault::kTruncated;
      const std::byte code = in_[at_++];
      const auto value = static_cast<std::uint32_t>(code);
      if (value < kFirstRun && code != kZeroByte) {
        after_short_run_ = false;
        out[done++] = code;
        continue;
      }
      if (after_short_run_) return Fault::kSplitRun;
      zeros_left_ = code == kZeroByte ? 1 : value - kFirstRun + 2;
      after_short_run_ = zeros_left_ < kLongestRun;
    }
    return Fault::kNone;
  }

  const std::byte* in_;
  std::uint32_t bytes_;
  bool runs_;
  std::uint32_t at_ = 0;
  std::uint32_t zeros_left_ = 0;
  bool after_short_run_ = false;
};

Fault fault_of(base3::RowFault fault) noexcept {
  if (fault == base3::RowFault::kNone) return Fault::kNone;
  return fault == base3::RowFault::kPad ? Fault::kBadPad : Fault::kNonzeroWithoutM;
}

Fault decode_packed(PackedBytes bytes, const DecodeTarget& target) noexcept {
  for (std::uint32_t at = 0; at < target.count; at += kRowElements) {
    const std::uint32_t left = target.count - at;
    const std::uint32_t count = left < kRowElements ? left : kRowElements;
    const std::uint32_t stride = packed_bytes(count);
    std::byte row[kRowBytes];
    if (const Fault fault = bytes.next(row, stride); fault != Fault::kNone) return fault;
    const base3::RowFault fault = base3::unpack_row(
        kDigits, row, {target.slot + at, count, target.value, target.zeros_only, target.accumulate});
    if (fault != base3::RowFault::kNone) return fault_of(fault);
  }
  return bytes.finish();
}

// One gap; what it returns past the end of the bits is arbitrary, and the reader then exhausted.
std::uint32_t read_gap(BitReader& reader, unsigned parameter, Fault& fault) noexcept {
  const unsigned unary = reader.get_unary(kMaxUnary);
  if (unary < kMaxUnary) {
    return (std::uint32_t{unary} << parameter) | static_cast<std::uint32_t>(reader.get(parameter));
  }
  const auto gap = static_cast<std::uint32_t>(reader.get(kRiceEscapeBits));
  if (!reader.exhausted() && gap >> parameter < kMaxUnary) fault = Fault::kRiceEscape;
  return gap;
}

Fault decode_rice(const std::byte* in, std::uint32_t bytes, const DecodeTarget& target) noexcept {
  if (bytes < kRiceHeaderBytes) return Fault::kTruncated;
  const auto parameter = static_cast<unsigned>(in[0]);
  const std::uint32_t nonzeros = load_le<std::uint16_t>(in + 1);
  if (parameter > kRiceMaxParameter) return Fault::kRiceParameter;
  if (nonzeros > target.count) return Fault::kRiceCount;
  if (nonzeros > 0 && target.zeros_only) return Fault::kNonzeroWithoutM;
  if (!target.accumulate) {
    for (std::uint32_t i = 0; i < target.count; ++i) target.slot[i] = 0.0F;
  }
  BitReader reader(in + kRiceHeaderBytes, bytes - kRiceHeaderBytes);
  std::uint32_t next = 0;  // the position after the last one; at most count
  for (std::uint32_t i = 0; i < nonzeros; ++i) {
    Fault fault = Fault::kNone;
    const std::uint32_t gap = read_gap(reader, parameter, fault);
    const bool negative = reader.get(1) != 0;
    if (reader.exhausted()) return Fault::kTruncated;
    if (fault != Fault::kNone) return fault;
    if (gap >= target.count - next) return Fault::kRicePosition;
    const float value = negative ? -target.value : target.value;
    float& slot = target.slot[next + gap];
    slot = target.accumulate ? slot + value : value;
    next += gap + 1;
  }
  return reader.at_clean_end() ? Fault::kNone : Fault::kRicePadding;
}

}  // namespace

Fault decode_chunk(const ChunkBytes& chunk, const DecodeTarget& target) {
  if (chunk.bytes == 0) return Fault::kTruncated;
  const std::byte* in = chunk.at + 1;
  const std::uint32_t bytes = chunk.bytes - 1;
  switch (static_cast<std::uint8_t>(chunk.at[0])) {
    case static_cast<std::uint8_t>(ChunkMode::kBase3): return decode_packed({in, bytes, false}, target);
    case static_cast<std::uint8_t>(ChunkMode::kZeroRuns): return decode_packed({in, bytes, true}, target);
    case static_cast<std::uint8_t>(ChunkMode::kRice): return decode_rice(in, bytes, target);
    default: return Fault::kUnknownMode;
  }
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
