// Reference kernels.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

// Quantization.
namespace {

// Digits of one row (0, 1 or 2 for -1, 0 or +1), and its new residual. What is subtracted is m, 0 or -m, and
// x - m and x + m are exact (m/2 <= |x| <= m, Sterbenz), so nothing is lost between what is sent and what is
// kept.
void quantize_row(const QuantizeInput& row, std::uint8_t* digits) noexcept {
  const float m = row.scale.m;
  const float half = row.scale.half;
  for (std::uint32_t i = 0; i < row.count; ++i) {
    const float x = row.residual != nullptr ? row.in[i] + row.residual[i] : row.in[i];
    const int q = static_cast<int>(x >= half) - static_cast<int>(x <= -half);
    digits[i] = static_cast<std::uint8_t>(1 + q);
    if (row.left != nullptr) row.left[i] = x - static_cast<float>(q) * m;
  }
}

// Bit i of the result is the lowest bit of byte i: the product moves each to the top byte, and no two meet.
std::uint64_t gather_low_bits(std::uint64_t bytes) noexcept {
  return (bytes & 0x0101010101010101U) * 0x0102040810204080U >> 56;
}

// Adds one word of 64 digits to both maps; returns how many aren't 0.
std::uint32_t map_word(const std::uint8_t* digits, std::byte* nonzero, std::byte* negative) noexcept {
  std::uint64_t nonzero_word = 0;
  std::uint64_t negative_word = 0;
  for (unsigned group = 0; group < 8; ++group) {
    const auto eight = load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(digits) + group * 8);
    nonzero_word |= gather_low_bits(~eight) << (group * 8);                  // digits 0 and 2 are even
    negative_word |= gather_low_bits(~(eight | eight >> 1)) << (group * 8);  // digit 0
  }
  store_le(nonzero, nonzero_word);
  store_le(negative, negative_word);
  return popcount(nonzero_word);
}

std::uint32_t map_row(const std::uint8_t* digits, std::uint32_t count, const DigitMaps& maps) noexcept {
  std::uint32_t nonzeros = 0;
  for (std::uint32_t i = 0; i < count; i += 64) {
    nonzeros += map_word(digits + i, maps.nonzero + i / 8, maps.negative + i / 8);
  }
  return nonzeros;
}

void count_zeros(const std::byte* packed, std::uint32_t bytes, Quantized& quantized) noexcept {
  bool in_run = false;
  for (std::uint32_t i = 0; i < bytes; ++i) {
    const bool zero = packed[i] == kZeroByte;
    quantized.zero_bytes += zero ? 1U : 0U;
    quantized.zero_runs += zero && !in_run ? 1U : 0U;
    in_run = zero;
  }
}

}  // namespace

Quantized quantize(const QuantizeInput& input, std::byte* packed, const DigitMaps& maps) {
  Quantized quantized;
  for (std::uint32_t at = 0; at < input.count; at += kRowElements) {
    const std::uint32_t left = input.count - at;
    const std::uint32_t count = left < kRowElements ? left : kRowElements;
    const std::uint32_t stride = left < kRowElements ? packed_bytes(left) : kRowBytes;
    std::uint8_t digits[kRowElements];
    std::memset(digits, 1, sizeof digits);  // pads are zeros
    quantize_row(part_of(input, at, count), digits);
    base3::pack_row(digits, stride, packed + at / kDigitsPerByte);
    if (maps.nonzero != nullptr) {
      quantized.nonzeros += map_row(digits, count, {maps.nonzero + at / 8, maps.negative + at / 8});
    }
  }
  count_zeros(packed, packed_bytes(input.count), quantized);
  return quantized;
}

// Zero runs.
namespace {

// The run of zero bytes that begins at `at`.
std::uint32_t zero_run(const std::byte* packed, std::uint32_t at, std::uint32_t bytes) noexcept {
  std::uint32_t end = at;
  while (end < bytes && packed[end] == kZeroByte) ++end;
  return end - at;
}

}  // namespace

std::uint32_t zero_runs(const std::byte* packed, std::uint32_t bytes, std::byte* out) {
  std::uint32_t written = 0;
  for (std::uint32_t at = 0; at < bytes;) {
    const std::uint32_t run = zero_run(packed, at, bytes);
    if (run == 0) {
      out[written++] = packed[at++];
      continue;
    }
    at += run;
    for (std::uint32_t left = run; left > 0;) {
      const std::uint32_t part = left < kLongestRun ? left : kLongestRun;
      out[written++] = part == 1 ? kZeroByte : static_cast<std::byte>(kFirstRun + part - 2);
      left -= part;
    }
  }
  return written;
}

// Positions and signs in Rice codes.
namespace {

// Calls visit(gap, negative) for each digit that isn't 0, in the order of the elements.
template <class Visit>
void for_each_nonzero(const DigitMaps& maps, std::uint32_t count, Visit visit) {
  std::uint32_t next = 0;  // the position after the last one visited
  for (std::uint32_t at = 0; at < count; at += 64) {
    auto left = load_le<std::uint64_t>(maps.nonzero + at / 8);
    const auto negative = load_le<std::uint64_t>(maps.negative + at / 8);
    for (; left != 0; left &= left - 1) {
      const auto bit = countr_zero(left);
      visit(at + bit - next, (negative >> bit & 1) != 0);
      next = at + bit + 1;
    }
  }
}

}  // namespace

std::uint32_t rice(const DigitMaps& maps, std::uint32_t count, const RiceCode& code, std::byte* out,
                   std::uint32_t limit) {
  out[0] = static_cast<std::byte>(code.parameter);
  store_le(out + 1, static_cast<std::uint16_t>(code.nonzeros));
  BitWriter writer(out + kRiceHeaderBytes, limit - 1 - kRiceHeaderBytes);
  for_each_nonzero(maps, count, [&](std::uint32_t gap, bool negative) {
    const RiceBits bits = rice_bits_of(gap, code.parameter, kRiceEscapeBits);
    writer.put(bits.value | std::uint64_t{negative} << bits.bits, bits.bits + 1);
  });
  const std::uint64_t written = writer.finish();
  return writer.overflowed() ? limit : kRiceHeaderBytes + static_cast<std::uint32_t>(written);
}

// Decoding a chunk of hostile bytes.
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
    if (zeros_left_ > 0) return &faults::kRunTooLong;
    return at_ < bytes_ ? &faults::kTrailingBytes : nullptr;
  }

 private:
  Fault next_plain(std::byte* out, std::uint32_t wanted) noexcept {
    if (wanted > bytes_ - at_) return &faults::kTruncated;
    std::memcpy(out, in_ + at_, wanted);
    at_ += wanted;
    std::uint32_t largest = 0;
    for (std::uint32_t i = 0; i < wanted; ++i) {
      const auto value = static_cast<std::uint32_t>(out[i]);
      largest = value > largest ? value : largest;
    }
    return largest > kMaxPackedByte ? &faults::kBadByte : nullptr;
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
      if (at_ == bytes_) return &faults::kTruncated;
      const std::byte code = in_[at_++];
      const auto value = static_cast<std::uint32_t>(code);
      if (value < kFirstRun && code != kZeroByte) {
        after_short_run_ = false;
        out[done++] = code;
        continue;
      }
      if (after_short_run_) return &faults::kSplitRun;
      zeros_left_ = code == kZeroByte ? 1 : value - kFirstRun + 2;
      after_short_run_ = zeros_left_ < kLongestRun;
    }
    return nullptr;
  }

  const std::byte* in_;
  std::uint32_t bytes_;
  bool runs_;
  std::uint32_t at_ = 0;
  std::uint32_t zeros_left_ = 0;
  bool after_short_run_ = false;
};

Fault decode_packed(PackedBytes bytes, const DecodeTarget& target) noexcept {
  for (std::uint32_t at = 0; at < target.count; at += kRowElements) {
    const std::uint32_t left = target.count - at;
    const std::uint32_t count = left < kRowElements ? left : kRowElements;
    const std::uint32_t stride = packed_bytes(count);
    std::byte row[kRowBytes];
    if (const Fault fault = bytes.next(row, stride); fault != nullptr) return fault;
    const Fault fault = base3::unpack_row(
        kDigits, row, {target.slot + at, count, target.value, target.zeros_only, target.accumulate});
    if (fault != nullptr) return fault;
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
  if (!reader.exhausted() && gap >> parameter < kMaxUnary) fault = &faults::kRiceEscape;
  return gap;
}

Fault decode_rice(const std::byte* in, std::uint32_t bytes, const DecodeTarget& target) noexcept {
  if (bytes < kRiceHeaderBytes) return &faults::kTruncated;
  const auto parameter = static_cast<unsigned>(in[0]);
  const std::uint32_t nonzeros = load_le<std::uint16_t>(in + 1);
  if (parameter > kRiceMaxParameter) return &faults::kRiceParameter;
  if (nonzeros > target.count) return &faults::kRiceCount;
  if (nonzeros > 0 && target.zeros_only) return &faults::kNonzeroWithoutM;
  if (!target.accumulate) {
    for (std::uint32_t i = 0; i < target.count; ++i) target.slot[i] = 0.0F;
  }
  BitReader reader(in + kRiceHeaderBytes, bytes - kRiceHeaderBytes);
  std::uint32_t next = 0;  // the position after the last one; at most count
  for (std::uint32_t i = 0; i < nonzeros; ++i) {
    Fault fault = nullptr;
    const std::uint32_t gap = read_gap(reader, parameter, fault);
    const bool negative = reader.get(1) != 0;
    if (reader.exhausted()) return &faults::kTruncated;
    if (fault != nullptr) return fault;
    if (gap >= target.count - next) return &faults::kRicePosition;
    const float value = negative ? -target.value : target.value;
    float& slot = target.slot[next + gap];
    slot = target.accumulate ? slot + value : value;
    next += gap + 1;
  }
  return reader.at_clean_end() ? nullptr : &faults::kRicePadding;
}

}  // namespace

Fault decode_chunk(const ChunkBytes& chunk, const DecodeTarget& target) {
  if (chunk.bytes == 0) return &faults::kTruncated;
  const std::byte* in = chunk.at + 1;
  const std::uint32_t bytes = chunk.bytes - 1;
  switch (static_cast<std::uint8_t>(chunk.at[0])) {
    case static_cast<std::uint8_t>(ChunkMode::kBase3): return decode_packed({in, bytes, false}, target);
    case static_cast<std::uint8_t>(ChunkMode::kZeroRuns): return decode_packed({in, bytes, true}, target);
    case static_cast<std::uint8_t>(ChunkMode::kRice): return decode_rice(in, bytes, target);
    default: return &faults::kUnknownMode;
  }
}

extern constexpr Kernels kKernels = {quantize, zero_runs, rice, decode_chunk};

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
