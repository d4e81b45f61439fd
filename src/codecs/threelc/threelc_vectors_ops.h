// What vector kernels share: quantizing by rows, where the code for a full row of 320 elements also does the
// last one; writing and expanding zero runs; and the decoder around them, which leaves an invalid chunk to
// the reference: that says what is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/kernels/rice.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc {

// The digits of a full row: bit j of word p belongs to element 64 p + j.
struct RowDigits {
  std::uint64_t positive[kDigitsPerByte];
  std::uint64_t negative[kDigitsPerByte];
};

// Counts zero bytes and their runs, row by row.
struct ZeroCounter {
  std::uint32_t bytes = 0;
  std::uint32_t runs = 0;
  std::uint64_t in_run = 0;  // 1: the byte before was a zero byte

  // `zeros`: which of the row's `stride` bytes are zero bytes. Bits of pads count for nothing.
  [[gnu::always_inline]] void add(std::uint64_t zeros, std::uint32_t stride) noexcept {
    zeros &= ~std::uint64_t{0} >> (kRowBytes - stride);
    bytes += popcount(zeros);
    runs += popcount(zeros & ~(zeros << 1 | in_run));
    in_run = zeros >> (stride - 1) & 1;
  }
};

[[gnu::always_inline]] inline std::uint32_t store_maps(const RowDigits& digits, const DigitMaps& maps,
                                                       std::uint32_t words) noexcept {
  std::uint32_t nonzeros = 0;
  for (std::uint32_t i = 0; i < words; ++i) {
    const std::uint64_t nonzero = digits.positive[i] | digits.negative[i];
    nonzeros += popcount(nonzero);
    store_le(maps.nonzero + i * 8, nonzero);
    store_le(maps.negative + i * 8, digits.negative[i]);
  }
  return nonzeros;
}

// The digits of a row of `stride` < 64 bytes lie as those of a full row, the first `stride` of each word;
// moves them together.
[[gnu::always_inline]] inline RowDigits closed_up(const RowDigits& apart, std::uint32_t stride) noexcept {
  RowDigits digits{};
  for (std::uint32_t p = 0; p < kDigitsPerByte; ++p) {
    const std::uint32_t word = p * stride / 64;
    const std::uint32_t shift = p * stride % 64;
    digits.positive[word] |= apart.positive[p] << shift;
    digits.negative[word] |= apart.negative[p] << shift;
    if (shift + stride <= 64) continue;
    digits.positive[word + 1] |= apart.positive[p] >> (64 - shift);
    digits.negative[word + 1] |= apart.negative[p] >> (64 - shift);
  }
  return digits;
}

// The elements of a row of `count` < 320, spread so that element j of each fifth lies where it would in a
// full row. Behind them zeros, whose digits are 0 as those of pads are.
[[gnu::always_inline]] inline void spread(const float* from, std::uint32_t count, float* row) noexcept {
  const std::uint32_t stride = packed_bytes(count);
  std::memset(row, 0, kRowElements * sizeof(float));
  for (std::uint32_t p = 0; p * stride < count; ++p) {
    const std::uint32_t left = count - p * stride;
    std::memcpy(row + p * kRowBytes, from + p * stride, (left < stride ? left : stride) * sizeof(float));
  }
}

[[gnu::always_inline]] inline void close_up(const float* row, std::uint32_t count, float* to) noexcept {
  const std::uint32_t stride = packed_bytes(count);
  for (std::uint32_t p = 0; p * stride < count; ++p) {
    const std::uint32_t left = count - p * stride;
    std::memcpy(to + p * stride, row + p * kRowBytes, (left < stride ? left : stride) * sizeof(float));
  }
}

// Quantizes the last row of a chunk, of fewer than 320 elements, as a full one.
template <class QuantizeRow>
[[gnu::always_inline]] inline std::uint64_t quantize_last_row(const QuantizeInput& input, std::byte* packed,
                                                              RowDigits& digits,
                                                              QuantizeRow quantize_row) noexcept {
  alignas(64) float in[kRowElements];
  alignas(64) float residual[kRowElements];
  alignas(64) std::byte row[kRowBytes];
  const std::uint32_t stride = packed_bytes(input.count);
  spread(input.in, input.count, in);
  if (input.residual != nullptr) spread(input.residual, input.count, residual);
  const std::uint64_t zeros =
      quantize_row(QuantizeInput{in, input.residual != nullptr ? residual : nullptr,
                                 input.left != nullptr ? in : nullptr, kRowElements, input.scale},
                   row, digits);
  std::memcpy(packed, row, stride);
  if (input.left != nullptr) close_up(in, input.count, input.left);
  digits = closed_up(digits, stride);
  return zeros;
}

template <class QuantizeRow>
[[gnu::always_inline]] inline Quantized quantize_rows(const QuantizeInput& input, std::byte* packed,
                                                      const DigitMaps& maps,
                                                      QuantizeRow quantize_row) noexcept {
  std::uint32_t nonzeros = 0;
  ZeroCounter zeros{};
  RowDigits digits;
  std::uint32_t at = 0;
  for (; at + kRowElements <= input.count; at += kRowElements, packed += kRowBytes) {
    zeros.add(quantize_row(part_of(input, at, kRowElements), packed, digits), kRowBytes);
    if (maps.nonzero == nullptr) continue;
    nonzeros += store_maps(digits, {maps.nonzero + at / 8, maps.negative + at / 8}, kDigitsPerByte);
  }
  if (const std::uint32_t rest = input.count - at; rest > 0) {
    zeros.add(quantize_last_row(part_of(input, at, rest), packed, digits, quantize_row), packed_bytes(rest));
    if (maps.nonzero != nullptr) {
      const DigitMaps last = {maps.nonzero + at / 8, maps.negative + at / 8};
      nonzeros += store_maps(digits, last, map_bytes(rest) / 8);
    }
  }
  return {nonzeros, zeros.bytes, zeros.runs};
}

// Kernels::quantize by Row::quantize<adds, keeps>(input, packed, digits), which quantizes a full row: `adds`
// a residual, `keeps` the new one; it returns which of the row's bytes are zero bytes.
template <class Row>
[[gnu::always_inline]] inline Quantized quantize_by(const QuantizeInput& input, std::byte* packed,
                                                    const DigitMaps& maps) noexcept {
  if (input.residual != nullptr) {
    return input.left != nullptr ? quantize_rows(input, packed, maps, Row::template quantize<true, true>)
                                 : quantize_rows(input, packed, maps, Row::template quantize<true, false>);
  }
  return input.left != nullptr ? quantize_rows(input, packed, maps, Row::template quantize<false, true>)
                               : quantize_rows(input, packed, maps, Row::template quantize<false, false>);
}

// The codes of as many runs of 14 as there are in a run; returns where the code of the rest goes.
[[gnu::always_inline]] inline std::byte* write_full_runs(std::byte* out, std::uint32_t run) noexcept {
  const std::uint32_t full = run / kLongestRun;
  if (full > 0) std::memset(out, 0xFF, full);
  return out + full;
}

[[gnu::always_inline]] inline std::byte* write_run(std::byte* out, std::uint32_t run) noexcept {
  if (run >= kLongestRun) out = write_full_runs(out, run);
  const std::uint32_t rest = run % kLongestRun;
  if (rest == 0) return out;
  *out = rest == 1 ? kZeroByte : static_cast<std::byte>(kFirstRun + rest - 2);
  return out + 1;
}

// The bytes [begin, end) of a block, which neither begins nor ends with a zero byte; `zeros` are those
// between. Writes at most a block past what it returns.
template <class Block>
[[gnu::always_inline]] inline std::byte* write_between(const std::byte* block, std::uint64_t zeros,
                                                       unsigned begin, unsigned end,
                                                       std::byte* out) noexcept {
  for (std::uint64_t pairs = zeros & zeros >> 1; pairs != 0;) {  // runs of one stay as they are
    const unsigned run_at = countr_zero(pairs);
    const unsigned run = countr_one(zeros >> run_at);
    Block::load(block + begin).store(out);
    out = write_run(out + (run_at - begin), run);
    begin = run_at + run;
    pairs &= ~std::uint64_t{0} << begin;
  }
  Block::load(block + begin).store(out);
  return out + (end - begin);
}

// Kernels::zero_runs.
//
// Block, here and below: kBytes, at most 64; load(from); all(byte), copies of one byte; store(to);
// equal(byte) and at_least(byte), a bit for each byte for which that holds.
template <class Block>
[[gnu::always_inline]] inline std::uint32_t zero_runs_by(const std::byte* packed, std::uint32_t bytes,
                                                         std::byte* out) noexcept {
  constexpr std::uint32_t kBytes = Block::kBytes;
  constexpr std::uint64_t kAll = ~std::uint64_t{0} >> (64 - kBytes);
  std::byte* to = out;
  std::uint32_t run = 0;  // zero bytes before `at`, not written yet
  std::uint32_t at = 0;
  // A block is read and written from anywhere inside the one before.
  for (; at + 2 * kBytes <= bytes; at += kBytes) {
    const std::uint64_t zeros = Block::load(packed + at).equal(kZeroByte);
    if (zeros == kAll) {
      run += kBytes;
      continue;
    }
    const unsigned first = countr_one(zeros);
    const unsigned end = bit_width(~zeros & kAll);
    to = write_run(to, run + first);
    const std::uint64_t between = kAll << first & kAll >> (kBytes - end);
    to = write_between<Block>(packed + at, zeros & between, first, end, to);
    run = kBytes - end;
  }
  to = write_full_runs(to, run);
  const std::uint32_t rest = bytes - at + run % kLongestRun;
  to += kernels_for(TargetId::kReference).zero_runs(packed + bytes - rest, rest, to);
  return static_cast<std::uint32_t>(to - out);
}

// Expands zero runs, a block of codes at a time.
template <class Block>
class Expansion {
 public:
  [[gnu::always_inline]] Expansion(std::byte* out, std::uint32_t bytes) noexcept
      : at_(out), end_(out + bytes) {}

  // The first `count` codes of a block, behind which another block may be read. False if there are too many,
  // or a run is split.
  [[gnu::always_inline]] bool add(const std::byte* codes, std::uint32_t count) noexcept {
    const Block block = Block::load(codes);
    const std::uint64_t inside = ~std::uint64_t{0} >> (64 - count);
    const std::uint64_t runs = block.at_least(static_cast<std::byte>(kFirstRun)) & inside;
    const std::uint64_t zeros = (block.equal(kZeroByte) & inside) | runs;
    const std::uint64_t shorter = zeros & ~block.equal(std::byte{0xFF});
    if (((shorter << 1 | after_shorter_) & zeros) != 0) return false;
    after_shorter_ = shorter >> (count - 1) & 1;
    return copy(codes, count, runs);
  }

  [[gnu::always_inline]] bool done() const noexcept { return at_ == end_; }

 private:
  [[gnu::always_inline]] bool copy(const std::byte* codes, std::uint32_t count, std::uint64_t runs) noexcept {
    std::uint32_t begin = 0;
    for (; runs != 0; runs &= runs - 1) {
      const unsigned run_at = countr_zero(runs);
      Block::load(codes + begin).store(at_);
      at_ += run_at - begin;
      if (at_ > end_) return false;
      Block::all(kZeroByte).store(at_);  // the longest run is shorter than a block
      at_ += static_cast<std::uint32_t>(codes[run_at]) - kFirstRun + 2;
      if (at_ > end_) return false;
      begin = run_at + 1;
    }
    Block::load(codes + begin).store(at_);
    at_ += count - begin;
    return at_ <= end_;
  }

  std::byte* at_;
  std::byte* end_;
  std::uint64_t after_shorter_ = 0;  // 1: the code before stands for a run of fewer than 14
};

// Kernel expand_runs. Writes less than a block behind the packed bytes and the longest run.
template <class Block>
[[gnu::always_inline]] inline bool expand_by(const ChunkBytes& codes, std::byte* packed,
                                             std::uint32_t bytes) noexcept {
  constexpr std::uint32_t kBytes = Block::kBytes;
  Expansion<Block> expansion(packed, bytes);
  std::uint32_t at = 0;
  for (; at + 2 * kBytes <= codes.bytes; at += kBytes) {
    if (!expansion.add(codes.at + at, kBytes)) return false;
  }
  std::byte rest[3 * kBytes] = {};
  const std::uint32_t left = codes.bytes - at;
  if (left > 0) std::memcpy(rest, codes.at + at, left);
  for (std::uint32_t done = 0; done < left; done += kBytes) {
    const std::uint32_t count = left - done < kBytes ? left - done : kBytes;
    if (!expansion.add(rest + done, count)) return false;
  }
  return expansion.done();
}

// Sizes of a full chunk.
inline constexpr std::uint32_t kMostPackedBytes = packed_bytes(kChunkElements);
inline constexpr std::uint32_t kMostMapBytes = map_bytes(kChunkElements);
inline constexpr std::uint32_t kRoom = 128;  // behind these, for stores of whole vectors

inline constexpr std::uint32_t kDigitRoom = 512;  // behind digits of a byte each

// How values get to the slot.
enum class Into : std::uint8_t { kSlot, kPastCaches, kSum };

// What the slot of a chunk allows: values go past the caches in whole lines only.
[[gnu::always_inline]] inline Into into_of(const DecodeTarget& target) noexcept {
  if (target.accumulate) return Into::kSum;
  const bool lines = bit_cast<std::uintptr_t>(target.slot) % 64 == 0;
  return target.streamed && lines ? Into::kPastCaches : Into::kSlot;
}

// Calls `call` with how values get to the slot as its template's argument.
template <class Call>
[[gnu::always_inline]] inline auto for_into(const DecodeTarget& target, const Call& call) noexcept {
  switch (into_of(target)) {
    case Into::kPastCaches: return call.template operator()<Into::kPastCaches>();
    case Into::kSum: return call.template operator()<Into::kSum>();
    default: return call.template operator()<Into::kSlot>();
  }
}

// Whether so few digits are nonzero that finding them one by one is faster.
[[gnu::always_inline]] inline bool sparse(std::uint32_t nonzeros, std::uint32_t count) noexcept {
  return nonzeros <= count / 64;
}

// A row with at most this many bytes that aren't zero bytes has its digits added one by one.
inline constexpr unsigned kFewBytes = 6;

// Values of maps' digits from element `begin` on, one by one.
[[gnu::always_inline]] inline void put_last_digits(const DigitMaps& maps, std::uint32_t begin,
                                                   const DecodeTarget& target) noexcept {
  for (std::uint32_t at = begin; at < target.count; ++at) {
    const unsigned bit = at % 8;
    const bool nonzero = (static_cast<unsigned>(maps.nonzero[at / 8]) >> bit & 1) != 0;
    const bool negative = (static_cast<unsigned>(maps.negative[at / 8]) >> bit & 1) != 0;
    const float value = negative ? -target.value : target.value;
    if (!target.accumulate) target.slot[at] = nonzero ? value : 0.0F;
    if (target.accumulate && nonzero) target.slot[at] += value;
  }
}

// The same of digits of a byte each.
[[gnu::always_inline]] inline void put_last_digits(const std::uint8_t* digits, std::uint32_t begin,
                                                   const DecodeTarget& target) noexcept {
  for (std::uint32_t at = begin; at < target.count; ++at) {
    const float value = digits[at] == kNegativeDigit ? -target.value : target.value;
    if (!target.accumulate) target.slot[at] = digits[at] != 0 ? value : 0.0F;
    if (target.accumulate && digits[at] != 0) target.slot[at] += value;
  }
}

// The digits of the bytes of a row that `nonzero` says, one by one.
[[gnu::always_inline]] inline void add_bytes(const std::byte* packed, std::uint64_t nonzero, float value,
                                             float* slot) noexcept {
  for (; nonzero != 0; nonzero &= nonzero - 1) {
    const unsigned j = countr_zero(nonzero);
    std::uint32_t fraction = static_cast<std::uint32_t>(packed[j]) * 270;
    for (std::uint32_t p = 0; p < kDigitsPerByte; ++p) {
      fraction = (fraction & 0xFFFF) * 3;
      const std::uint32_t digit = fraction >> 16;
      if (digit != 1) slot[j + p * kRowBytes] += digit == 2 ? value : -value;
    }
  }
}

namespace DELTAWIRE_TARGET {

// Puts `rows` full rows of packed bytes into the slot. Returns the largest of the bytes: above kMaxPackedByte
// they mean nothing.
std::uint32_t unpack_rows(const std::byte* packed, std::uint32_t rows, const DecodeTarget& target);

// Puts the values of maps of target.count digits into the slot.
void put_digits(const DigitMaps& maps, const DecodeTarget& target);

// Expands mode 1 to `bytes` packed bytes; behind them there is kRoom. False if the chunk is no valid one.
bool expand_runs(const ChunkBytes& codes, std::byte* packed, std::uint32_t bytes);

// Reads mode 2 into maps of `count` elements; behind each there is kRoom. False if the chunk is no valid one,
// or an uncommon one: then the maps' content is unspecified.
bool read_rice(const ChunkBytes& rice, std::uint32_t count, const DigitMaps& maps);

// Whether read_digits() is the faster one for this parameter, at most kMostDenseParameter.
bool are_read_as_bytes(unsigned parameter);

// Reads mode 2 into `count` digits of a byte each, as in RiceBytes; behind them there is kDigitRoom. False as
// above.
bool read_digits(const ChunkBytes& rice, std::uint32_t count, std::uint8_t* digits);

// Puts the values of target.count digits of a byte each into the slot.
void put_digit_bytes(const std::uint8_t* digits, const DecodeTarget& target);

// Reads mode 2 and adds to the slot, or sets, what isn't 0. False as above.
bool scatter_rice(const ChunkBytes& rice, const DecodeTarget& target);

[[gnu::always_inline]] inline Fault decode_as_reference(const ChunkBytes& chunk,
                                                        const DecodeTarget& target) noexcept {
  return kernels_for(TargetId::kReference).decode(chunk, target);
}

// The last row, of fewer than 320 elements, as a chunk of its own.
[[gnu::always_inline]] inline Fault decode_last_row(const std::byte* packed, std::uint32_t rows,
                                                    const DecodeTarget& target) noexcept {
  DecodeTarget row = target;
  row.slot += rows * kRowElements;
  row.count -= rows * kRowElements;
  if (row.count == 0) return nullptr;
  std::byte chunk[1 + kRowBytes] = {static_cast<std::byte>(ChunkMode::kBase3)};
  const std::uint32_t bytes = packed_bytes(row.count);
  std::memcpy(chunk + 1, packed + rows * kRowBytes, bytes);
  return decode_as_reference({chunk, 1 + bytes}, row);
}

[[gnu::always_inline]] inline Fault decode_packed(const std::byte* packed,
                                                  const DecodeTarget& target) noexcept {
  const std::uint32_t rows = target.count / kRowElements;
  if (unpack_rows(packed, rows, target) > kMaxPackedByte) return &faults::kBadByte;
  return decode_last_row(packed, rows, target);
}

[[gnu::always_inline]] inline Fault decode_runs(const ChunkBytes& chunk,
                                                const DecodeTarget& target) noexcept {
  alignas(64) std::byte packed[kMostPackedBytes + kRoom];
  const bool valid = expand_runs({chunk.at + 1, chunk.bytes - 1}, packed, packed_bytes(target.count));
  return valid ? decode_packed(packed, target) : decode_as_reference(chunk, target);
}

[[gnu::always_inline]] inline Fault decode_rice(const ChunkBytes& chunk,
                                                const DecodeTarget& target) noexcept {
  const ChunkBytes rice = {chunk.at + 1, chunk.bytes - 1};
  if (rice.bytes < kRiceHeaderBytes) return &faults::kTruncated;
  // Past the caches each line may be written only once.
  if (sparse(load_le<std::uint16_t>(rice.at + 1), target.count) && into_of(target) != Into::kPastCaches) {
    return scatter_rice(rice, target) ? nullptr : decode_as_reference(chunk, target);
  }
  if (are_read_as_bytes(static_cast<unsigned>(rice.at[0]))) {
    alignas(64) std::uint8_t digits[kChunkElements + kDigitRoom];
    if (!read_digits(rice, target.count, digits)) return decode_as_reference(chunk, target);
    put_digit_bytes(digits, target);
    return nullptr;
  }
  std::byte nonzero[kMostMapBytes + kRoom];
  std::byte negative[kMostMapBytes + kRoom];
  const DigitMaps maps = {nonzero, negative};
  if (!read_rice(rice, target.count, maps)) return decode_as_reference(chunk, target);
  put_digits(maps, target);
  return nullptr;
}

}  // namespace DELTAWIRE_TARGET

}  // namespace deltawire::threelc
