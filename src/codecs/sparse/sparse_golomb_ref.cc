// Reference kernels: positions in the Golomb code. What decodes rounds of gaps is in sparse_rounds_*.cc.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "base/prefetch.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

// Encoding.

namespace {

std::uint32_t gap_before(const std::uint32_t* positions, std::uint32_t i) noexcept {
  return positions[i] - positions[i - 1] - 1;
}

// Bits of the gaps in each of the lanes. Eight at a time, as vectors have them.
void count_bits(const std::uint32_t* positions, std::uint32_t count, unsigned parameter, unsigned lanes,
                std::uint32_t* lane_bits) noexcept {
  std::uint32_t bits[kMaxLanes] = {};
  std::uint32_t i = 1;
  for (; i + kMaxLanes <= count; i += kMaxLanes) {
    for (unsigned j = 0; j < kMaxLanes; ++j) {
      const std::uint32_t unary = gap_before(positions, i + j) >> parameter;
      bits[j] += unary < kMaxUnary ? unary + 1 + parameter : kMaxUnary + kEscapeBits;
    }
  }
  for (unsigned j = 0; i < count; ++i, ++j) {
    bits[j] += rice_bits_of(gap_before(positions, i), parameter, kEscapeBits).bits;
  }
  for (unsigned j = 0; j < kMaxLanes; ++j) lane_bits[j % lanes] += bits[j];
}

}  // namespace

std::uint32_t golomb_bytes(const std::uint32_t* positions, std::uint32_t count) {
  if (count < 2) return count == 0 ? kEmptyHeadBytes : kHeadBytes;
  const unsigned lanes = lanes_for(count);
  std::uint32_t lane_bits[kMaxLanes] = {};
  count_bits(positions, count, rice_parameter(count - 1, positions[count - 1] - positions[0]), lanes,
             lane_bits);
  std::uint32_t bytes = kHeadBytes + kLaneLengthBytes * (lanes - 1);
  for (unsigned lane = 0; lane < lanes; ++lane) bytes += (lane_bits[lane] + 7) / 8;
  return bytes;
}

std::uint32_t encode_chunk(const std::uint32_t* positions, std::uint32_t count, std::byte* out,
                           std::uint64_t out_bytes) {
  out[0] = std::byte{0};
  store_le(out + 1, static_cast<std::uint16_t>(count));
  if (count == 0) return kEmptyHeadBytes;
  store_le(out + kEmptyHeadBytes, positions[0]);
  if (count == 1) return kHeadBytes;

  const unsigned parameter = rice_parameter(count - 1, positions[count - 1] - positions[0]);
  const unsigned lanes = lanes_for(count);
  out[0] = static_cast<std::byte>(countr_zero(lanes) << kLaneShift | parameter);
  std::uint32_t lane_bits[kMaxLanes] = {};
  count_bits(positions, count, parameter, lanes, lane_bits);
  std::byte* at = out + kHeadBytes + kLaneLengthBytes * (lanes - 1);
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const std::uint32_t bytes = (lane_bits[lane] + 7) / 8;
    if (lane + 1 < lanes) {
      store_le(out + kHeadBytes + kLaneLengthBytes * lane, static_cast<std::uint16_t>(bytes));
    }
    BitWriter codes(at, out_bytes - static_cast<std::uint64_t>(at - out));
    for (std::uint32_t i = 1 + lane; i < count; i += lanes) {
      const RiceBits code = rice_bits_of(gap_before(positions, i), parameter, kEscapeBits);
      codes.put(code.value, code.bits);
    }
    at += codes.finish();
  }
  return static_cast<std::uint32_t>(at - out);
}

// Decoding hostile bytes: a chunk's head, and its gaps.

namespace {

constexpr unsigned kParameterMask = 31;

// Fills in head and content from a chunk's first bytes; lane lengths are read later.
Fault read_code(const ChunkBytes& chunk, Head& head, ChunkContent& content) noexcept {
  if (chunk.bytes < kEmptyHeadBytes) return &faults::kTruncated;
  const auto code = static_cast<unsigned>(chunk.at[0]);
  head.parameter = code & kParameterMask;
  head.lanes = 1U << (code >> kLaneShift);
  content.positions = load_le<std::uint16_t>(chunk.at + 1);
  content.head_bytes = kEmptyHeadBytes;
  if (head.parameter > kMaxParameter) return &faults::kParameter;
  if (head.lanes != 1 && head.lanes != 4 && head.lanes != kMaxLanes) return &faults::kLanes;
  if (content.positions > kChunkPositions) return &faults::kCount;
  if (content.positions < 2 && code != 0) return &faults::kUnusedCode;
  if (content.positions == 0) return chunk.bytes > kEmptyHeadBytes ? &faults::kTrailingBytes : nullptr;
  content.head_bytes = kHeadBytes + kLaneLengthBytes * (head.lanes - 1);
  if (chunk.bytes < content.head_bytes) return &faults::kTruncated;
  head.first = load_le<std::uint32_t>(chunk.at + kEmptyHeadBytes);
  return nullptr;
}

Fault open_streams(const ChunkBytes& chunk, std::uint32_t head_bytes, Head& head) noexcept {
  std::uint32_t at = head_bytes;
  for (unsigned lane = 0; lane + 1 < head.lanes; ++lane) {
    const std::uint32_t bytes = load_le<std::uint16_t>(chunk.at + kHeadBytes + kLaneLengthBytes * lane);
    if (bytes > chunk.bytes - at) return &faults::kTruncated;
    head.streams[lane] = {chunk.at + at, bytes};
    at += bytes;
  }
  head.streams[head.lanes - 1] = {chunk.at + at, chunk.bytes - at};
  return nullptr;
}

// Fills in `head`, and in `content` the positions, the head's bytes and next = begin.
Fault read_head(const ChunkBytes& chunk, std::uint64_t begin, std::uint64_t count, Head& head,
                ChunkContent& content) {
  if (const Fault fault = read_code(chunk, head, content); fault != nullptr) return fault;
  content.next = begin;
  if (content.positions == 0) return nullptr;
  if (head.first < begin) return &faults::kOrder;
  if (head.first >= count) return &faults::kPosition;
  return open_streams(chunk, content.head_bytes, head);
}

// REQUIRES: parameter <= kMaxParameter. Past the end the gap is arbitrary.
inline std::uint32_t read_gap(BitWindow& lane, unsigned parameter, Fault& fault) noexcept {
  const std::uint64_t window = lane.peek();
  const auto unary = countr_one(window);
  if (unary < kMaxUnary) {
    lane.position += unary + 1 + parameter;
    const std::uint64_t low = window >> (unary + 1) & ((std::uint64_t{1} << parameter) - 1);
    return unary << parameter | static_cast<std::uint32_t>(low);
  }
  lane.position += kMaxUnary + kEscapeBits;
  const auto gap = static_cast<std::uint32_t>(window >> kMaxUnary);
  if (gap >> parameter < kMaxUnary && !lane.exhausted()) fault = &faults::kEscape;
  return gap;
}

// Adds or writes the value at positions some time after they are known, so that memory far apart is on its
// way when it is needed.
class Scatter {
 public:
  // `first` is the number in the chunk of the first one that is put.
  Scatter(const DecodeTarget& target, std::uint32_t first) noexcept : target_(target), number_(first) {}

  void put(std::uint64_t position) noexcept {
    if (target_.positions != nullptr) {
      target_.positions[number_++] = static_cast<std::uint32_t>(position);
      return;
    }
    if (target_.slot == nullptr) return;
    if (waiting_ == kWaiting) flush();
    prefetch_far(target_.slot + position);
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
  std::uint32_t number_;
};

// Gap i is the next one of lane i mod kLanes, so a round of gaps has no dependency between its reads.
template <unsigned kLanes>
Fault decode_gaps(Head& head, const DecodeTarget& target, ChunkContent& content) noexcept {
  Fault fault = nullptr;
  std::uint64_t next = content.next;
  std::uint32_t left = content.positions - 1;
  left -= decode_rounds(head, left, target, next);
  Scatter scatter(target, content.positions - left);
  BitWindow* const lanes = head.streams;
  while (left > 0) {
    const unsigned round = left < kLanes ? left : kLanes;
    std::uint32_t gaps[kLanes];
    bool exhausted = false;
    for (unsigned lane = 0; lane < round; ++lane) {
      gaps[lane] = read_gap(lanes[lane], head.parameter, fault);
      exhausted |= lanes[lane].exhausted();
    }
    if (exhausted) return &faults::kTruncated;
    if (fault != nullptr) return fault;
    for (unsigned lane = 0; lane < round; ++lane) {
      if (gaps[lane] >= target.count - next) return &faults::kPosition;
      scatter.put(next + gaps[lane]);
      next += std::uint64_t{gaps[lane]} + 1;
    }
    left -= round;
  }
  scatter.flush();
  content.next = next;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    content.code_bits += lanes[lane].position;
    if (!lanes[lane].at_clean_end()) return &faults::kPadding;
  }
  return nullptr;
}

Fault decode_positions(const ChunkBytes& chunk, std::uint64_t begin, const DecodeTarget& target,
                       ChunkContent& content) noexcept {
  Head head{};
  if (const Fault fault = read_head(chunk, begin, target.count, head, content); fault != nullptr) {
    return fault;
  }
  if (content.positions == 0) return nullptr;
  Scatter first(target, 0);
  first.put(head.first);
  first.flush();
  content.next = std::uint64_t{head.first} + 1;
  switch (head.lanes) {
    case 1: return decode_gaps<1>(head, target, content);
    case 4: return decode_gaps<4>(head, target, content);
    default: return decode_gaps<kMaxLanes>(head, target, content);
  }
}

}  // namespace

ChunkContent decode_chunk(const ChunkBytes& chunk, std::uint64_t begin, const DecodeTarget& target) {
  if (chunk.bytes > 0 && static_cast<unsigned>(chunk.at[0]) == kInterpolativeCode) {
    return decode_interpolated(chunk, begin, target);
  }
  ChunkContent content{};
  content.fault = decode_positions(chunk, begin, target, content);
  return content;
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
