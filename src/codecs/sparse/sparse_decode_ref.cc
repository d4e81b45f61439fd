// Reference kernel: decoding the positions of a chunk, hostile bytes among them.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "codecs/kernels/prefetch.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

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
  if (gap >> parameter < kMaxUnary && !lane.exhausted()) fault = Fault::kEscape;
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
  Fault fault = Fault::kNone;
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
    content.code_bits += lanes[lane].position;
    if (!lanes[lane].at_clean_end()) return Fault::kPadding;
  }
  return Fault::kNone;
}

Fault decode_positions(const ChunkBytes& chunk, std::uint64_t begin, const DecodeTarget& target,
                       ChunkContent& content) noexcept {
  Head head{};
  if (const Fault fault = read_head(chunk, begin, target.count, head, content); fault != Fault::kNone) {
    return fault;
  }
  if (content.positions == 0) return Fault::kNone;
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
