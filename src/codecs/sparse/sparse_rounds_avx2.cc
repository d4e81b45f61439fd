// Gaps without a check for each: a batch is decoded, then looked at as a whole, and not taken if anything in
// it is odd. With the shifts of BMI2 four lanes are read at a time.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/kernels/prefetch.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kRounds = 16;
constexpr std::uint32_t kMostGaps = kRounds * kMaxLanes;
constexpr std::uint64_t kMostBits = std::uint64_t{kRounds} * (kMaxUnary + kEscapeBits);  // of a lane
constexpr std::uint64_t kPeekBytes = 8;

// Reads the next gap of `lane` of some lanes that are read in turn; false if it is a raw one that had a
// shorter code. REQUIRES: 8 bytes from the position on.
[[gnu::always_inline]] inline bool read_gap(BitWindow& lane, unsigned parameter,
                                            std::uint32_t& gap) noexcept {
  constexpr std::uint64_t kLast = std::uint64_t{1} << 63;  // so that there is a zero to be found
  const std::uint64_t window = load_le<std::uint64_t>(lane.at + lane.position / 8) >> lane.position % 8;
  const unsigned unary = countr_zero(~window | kLast);
  if (unary >= kMaxUnary) [[unlikely]] {
    lane.position += kMaxUnary + kEscapeBits;
    gap = static_cast<std::uint32_t>(window >> kMaxUnary);
    return gap >> parameter >= kMaxUnary;
  }
  lane.position += unary + 1 + parameter;
  const std::uint64_t low = (window >> unary >> 1) & ((std::uint64_t{1} << parameter) - 1);
  gap = unary << parameter | static_cast<std::uint32_t>(low);
  return true;
}

// kLanes of the lanes, from `first` on: their gaps go to every all_lanes-th place. Next to each goes the
// slot's memory is asked for at a place of `asked`: all at once, they would wait for each other.
template <unsigned kLanes>
bool read_lanes(BitWindow* first, unsigned all_lanes, unsigned parameter, std::uint32_t* gaps,
                const float* slot, const std::uint32_t* asked) noexcept {
  BitWindow lanes[kLanes] = {};
  for (unsigned lane = 0; lane < kLanes; ++lane) lanes[lane] = first[lane];
  bool good = true;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const std::uint32_t place = round * all_lanes + lane;
      good &= read_gap(lanes[lane], parameter, gaps[place]);
      if (slot != nullptr) prefetch_far(slot + asked[place]);
    }
  }
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    first[lane].position = lanes[lane].position;
    good &= !lanes[lane].exhausted();
  }
  return good;
}

// Whether no code can lead a lane out of the chunk.
bool may_read(const Head& head) noexcept {
  const BitWindow& last = head.streams[head.lanes - 1];
  const std::byte* const end = last.at + last.bytes;
  for (unsigned lane = 0; lane < head.lanes; ++lane) {
    const BitWindow& stream = head.streams[lane];
    const auto room = static_cast<std::uint64_t>(end - stream.at);
    if (room < (stream.position + kMostBits) / 8 + kPeekBytes) return false;
  }
  return true;
}

// The first of them is number `first` of the chunk.
void put(const DecodeTarget& target, const std::uint32_t* positions, std::uint32_t count,
         std::uint32_t first) noexcept {
  if (target.positions != nullptr) {
    std::memcpy(target.positions + first, positions, count * sizeof(std::uint32_t));
    return;
  }
  if (target.slot == nullptr) return;
  if (target.accumulate) {
    for (std::uint32_t i = 0; i < count; ++i) target.slot[positions[i]] += target.value;
  } else {
    for (std::uint32_t i = 0; i < count; ++i) target.slot[positions[i]] = target.value;
  }
}

bool read_batch(Head& head, std::uint32_t* gaps, const float* slot, const std::uint32_t* asked) noexcept {
  const unsigned lanes = head.lanes;
  if (lanes == 1) return read_lanes<1>(head.streams, lanes, head.parameter, gaps, slot, asked);
  bool good = true;
  for (unsigned lane = 0; lane < lanes; lane += 4) {
    good &= read_lanes<4>(head.streams + lane, lanes, head.parameter, gaps + lane, slot, asked + lane);
  }
  return good;
}

}  // namespace

std::uint32_t decode_rounds(Head& head, std::uint32_t gaps, const DecodeTarget& target, std::uint64_t& next) {
  const std::uint32_t batch = kRounds * head.lanes;
  // Of the batch that is read, of the one before, which memory is asked for, and of the one before that, for
  // which it has arrived.
  std::uint32_t places[3][kMostGaps];
  std::uint32_t* read = places[0];
  std::uint32_t* asked = places[1];
  std::uint32_t* arrived = places[2];
  std::uint32_t batches = 0;
  for (std::uint32_t i = 0; i < batch; ++i) asked[i] = 0;
  while (gaps - batches * batch >= batch && may_read(head)) {
    Head ahead = head;
    if (!read_batch(ahead, read, target.slot, asked)) break;
    std::uint64_t behind = next;
    for (std::uint32_t i = 0; i < batch; ++i) {
      behind += read[i];
      read[i] = static_cast<std::uint32_t>(behind++);
    }
    if (behind > target.count) break;
    if (batches > 1) put(target, arrived, batch, 1 + (batches - 2) * batch);
    std::uint32_t* const free = arrived;
    arrived = asked;
    asked = read;
    read = free;
    next = behind;
    head = ahead;
    ++batches;
  }
  if (batches > 1) put(target, arrived, batch, 1 + (batches - 2) * batch);
  if (batches > 0) put(target, asked, batch, 1 + (batches - 1) * batch);
  return batches * batch;
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
