// Reference kernels: coding the positions of a chunk, and decoding hostile bytes.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/sbc/sbc_ops.h"

namespace deltawire::sbc {

namespace {

constexpr unsigned kLaneShift = 5;  // of log2(lanes) in the first byte of a chunk
constexpr unsigned kParameterMask = 31;

// A gap's code, first bit lowest.
struct Code {
  std::uint64_t value = 0;
  unsigned bits = 0;
};

Code code_of(std::uint32_t gap, unsigned parameter) noexcept {
  const std::uint32_t unary = gap >> parameter;
  if (unary >= kMaxUnary) {
    return {((std::uint64_t{1} << kMaxUnary) - 1) | (std::uint64_t{gap} << kMaxUnary),
            kMaxUnary + kEscapeBits};
  }
  const std::uint64_t low = gap & ((1U << parameter) - 1);
  return {((std::uint64_t{1} << unary) - 1) | (low << (unary + 1)), unary + 1 + parameter};
}

std::uint32_t gap_before(const std::uint32_t* positions, std::uint32_t i) noexcept {
  return positions[i] - positions[i - 1] - 1;
}

// Reads codes; past the end it gives zeros and is exhausted().
class LaneReader {
 public:
  LaneReader() noexcept = default;
  LaneReader(const std::byte* at, std::uint32_t bytes) noexcept : at_(at), bytes_(bytes) {}

  // REQUIRES: parameter <= kMaxParameter.
  std::uint32_t gap(unsigned parameter, Fault& fault) noexcept {
    const std::uint64_t window = window_at_cursor();
    const auto unary = static_cast<unsigned>(std::countr_one(window));
    if (unary < kMaxUnary) {
      cursor_ += unary + 1 + parameter;
      const std::uint64_t low = window >> (unary + 1) & ((std::uint64_t{1} << parameter) - 1);
      return unary << parameter | static_cast<std::uint32_t>(low);
    }
    cursor_ += kMaxUnary + kEscapeBits;
    const auto gap = static_cast<std::uint32_t>(window >> kMaxUnary);
    if (gap >> parameter < kMaxUnary && !exhausted()) fault = Fault::kEscape;
    return gap;
  }

  bool exhausted() const noexcept { return cursor_ > std::uint64_t{bytes_} * 8; }

  // Whether all that is left is less than a byte of zero bits. REQUIRES: not exhausted.
  bool at_clean_end() const noexcept {
    return std::uint64_t{bytes_} * 8 - cursor_ < 8 && window_at_cursor() == 0;
  }

  std::uint64_t bits_read() const noexcept { return cursor_; }

 private:
  // The next 57 bits or more: a code has 56 at most. Zeros past the end.
  std::uint64_t window_at_cursor() const noexcept {
    const std::uint64_t byte = cursor_ / 8;
    if (byte >= bytes_) return 0;
    const std::uint64_t left = bytes_ - byte;
    if (left >= 8) return load_le<std::uint64_t>(at_ + byte) >> (cursor_ % 8);
    std::byte tail[8] = {};
    std::memcpy(tail, at_ + byte, left);
    return load_le<std::uint64_t>(tail) >> (cursor_ % 8);
  }

  const std::byte* at_ = nullptr;
  std::uint32_t bytes_ = 0;
  std::uint64_t cursor_ = 0;
};

struct Head {
  unsigned parameter = 0;
  unsigned lanes = 1;
  std::uint32_t first = 0;
};

// Fills in head and content from a chunk's first bytes; lane lengths are read later.
Fault read_head(const ChunkBytes& chunk, Head& head, ChunkContent& content) noexcept {
  if (chunk.bytes < kEmptyHeadBytes) return Fault::kTruncated;
  const auto code = std::to_integer<unsigned>(chunk.at[0]);
  head.parameter = code & kParameterMask;
  head.lanes = 1U << (code >> kLaneShift);
  content.positions = load_le<std::uint16_t>(chunk.at + 1);
  content.head_bytes = kEmptyHeadBytes;
  if (head.parameter > kMaxParameter) return Fault::kParameter;
  if (head.lanes != 1 && head.lanes != 4 && head.lanes != kMaxLanes) return Fault::kLanes;
  if (content.positions > kChunkPositions) return Fault::kCount;
  if (content.positions < 2 && code != 0) return Fault::kUnusedCode;
  if (content.positions == 0) return chunk.bytes > kEmptyHeadBytes ? Fault::kTrailingBytes : Fault::kNone;
  content.head_bytes = kHeadBytes + kLaneLengthBytes * (head.lanes - 1);
  if (chunk.bytes < content.head_bytes) return Fault::kTruncated;
  head.first = load_le<std::uint32_t>(chunk.at + kEmptyHeadBytes);
  return Fault::kNone;
}

Fault open_lanes(const ChunkBytes& chunk, const Head& head, std::uint32_t head_bytes,
                 LaneReader* readers) noexcept {
  std::uint32_t at = head_bytes;
  for (unsigned lane = 0; lane + 1 < head.lanes; ++lane) {
    const std::uint32_t bytes = load_le<std::uint16_t>(chunk.at + kHeadBytes + kLaneLengthBytes * lane);
    if (bytes > chunk.bytes - at) return Fault::kTruncated;
    readers[lane] = {chunk.at + at, bytes};
    at += bytes;
  }
  readers[head.lanes - 1] = {chunk.at + at, chunk.bytes - at};
  return Fault::kNone;
}

// Adds or writes the value at positions some time after they are known, so that memory far apart is on its
// way when it is needed.
class Scatter {
 public:
  explicit Scatter(const DecodeTarget& target) noexcept : target_(target) {}

  void put(std::uint64_t position) noexcept {
    if (target_.slot == nullptr) return;
    if (waiting_ == kWaiting) flush();
    __builtin_prefetch(target_.slot + position, 1);
    positions_[waiting_++] = position;
  }

  void flush() noexcept {
    for (std::uint32_t i = 0; i < waiting_; ++i) {
      float& slot = target_.slot[positions_[i]];
      slot = target_.accumulate ? slot + target_.value : target_.value;
    }
    waiting_ = 0;
  }

 private:
  static constexpr std::uint32_t kWaiting = 64;
  DecodeTarget target_;
  std::uint64_t positions_[kWaiting];
  std::uint32_t waiting_ = 0;
};

// Gap i is the next one of lane i mod kLanes, so a round of gaps has no dependency between its reads.
template <unsigned kLanes>
Fault decode_gaps(LaneReader* readers, unsigned parameter, const DecodeTarget& target,
                  ChunkContent& content) noexcept {
  Scatter scatter(target);
  Fault fault = Fault::kNone;
  std::uint64_t next = content.next;
  std::uint32_t left = content.positions - 1;
  while (left > 0) {
    const unsigned round = left < kLanes ? left : kLanes;
    std::uint32_t gaps[kLanes];
    bool exhausted = false;
    for (unsigned lane = 0; lane < round; ++lane) {
      gaps[lane] = readers[lane].gap(parameter, fault);
      exhausted |= readers[lane].exhausted();
    }
    if (exhausted) return Fault::kTruncated;
    if (fault != Fault::kNone) return fault;
    for (unsigned lane = 0; lane < round; ++lane) {
      if (gaps[lane] >= target.count - next) return Fault::kPosition;
      scatter.put(next + gaps[lane]);
      next += std::uint64_t{gaps[lane]} + 1;
    }
    left -= round;
  }
  scatter.flush();
  content.next = next;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    content.code_bits += readers[lane].bits_read();
    if (!readers[lane].at_clean_end()) return Fault::kPadding;
  }
  return Fault::kNone;
}

Fault decode_positions(const ChunkBytes& chunk, std::uint64_t begin, const DecodeTarget& target,
                       ChunkContent& content) noexcept {
  Head head;
  if (const Fault fault = read_head(chunk, head, content); fault != Fault::kNone) return fault;
  content.next = begin;
  if (content.positions == 0) return Fault::kNone;
  if (head.first < begin) return Fault::kOrder;
  if (head.first >= target.count) return Fault::kPosition;
  LaneReader readers[kMaxLanes];
  if (const Fault fault = open_lanes(chunk, head, content.head_bytes, readers); fault != Fault::kNone)
    return fault;
  Scatter first(target);
  first.put(head.first);
  first.flush();
  content.next = std::uint64_t{head.first} + 1;
  switch (head.lanes) {
    case 1: return decode_gaps<1>(readers, head.parameter, target, content);
    case 4: return decode_gaps<4>(readers, head.parameter, target, content);
    default: return decode_gaps<kMaxLanes>(readers, head.parameter, target, content);
  }
}

}  // namespace

std::uint32_t encode_chunk_ref(const std::uint32_t* positions, std::uint32_t count, std::byte* out,
                               std::uint64_t out_bytes) {
  out[0] = std::byte{0};
  store_le(out + 1, static_cast<std::uint16_t>(count));
  if (count == 0) return kEmptyHeadBytes;
  store_le(out + kEmptyHeadBytes, positions[0]);
  if (count == 1) return kHeadBytes;

  const unsigned parameter = rice_parameter(count - 1, positions[count - 1] - positions[0]);
  const unsigned lanes = lanes_for(count);
  out[0] = static_cast<std::byte>(static_cast<unsigned>(std::countr_zero(lanes)) << kLaneShift | parameter);
  std::uint32_t lane_bits[kMaxLanes] = {};
  for (std::uint32_t i = 1; i < count; ++i) {
    lane_bits[(i - 1) % lanes] += code_of(gap_before(positions, i), parameter).bits;
  }
  std::uint64_t at = kHeadBytes + kLaneLengthBytes * (lanes - 1);
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const std::uint32_t bytes = (lane_bits[lane] + 7) / 8;
    if (lane + 1 < lanes) {
      store_le(out + kHeadBytes + kLaneLengthBytes * lane, static_cast<std::uint16_t>(bytes));
    }
    BitWriter writer({out + at, bytes < out_bytes - at ? bytes : out_bytes - at});
    for (std::uint32_t i = 1 + lane; i < count; i += lanes) {
      const Code code = code_of(gap_before(positions, i), parameter);
      writer.put(code.value, code.bits);
    }
    at += writer.finish();
  }
  return static_cast<std::uint32_t>(at);
}

ChunkContent decode_chunk_ref(const ChunkBytes& chunk, std::uint64_t begin, const DecodeTarget& target) {
  ChunkContent content;
  content.fault = decode_positions(chunk, begin, target, content);
  return content;
}

}  // namespace deltawire::sbc
