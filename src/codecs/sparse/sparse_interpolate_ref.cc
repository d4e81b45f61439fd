// Reference kernels: positions between others. Of the positions i to j - 1 that lie in [low, high] the middle
// one is coded as one of the places that the others leave it, then the two halves are, the lower first
// (Moffat, Stuiver: "Binary Interpolative Coding for Effective Index Compression", 2000).
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

// Positions `begin` to `end` - 1 of a chunk, which lie in [low, high].
struct Stretch {
  std::uint32_t begin;
  std::uint32_t end;
  std::uint32_t low;
  std::uint32_t high;
};

constexpr unsigned kMostWaiting = 16;  // upper halves: one for each halving of kChunkPositions

// One of `places` places, of which the middle ones have a bit less: a code of `bits` or `bits` + 1 bits.
struct PlaceCode {
  std::uint64_t places;  // at least 1, at most 2^32
  unsigned bits;
  std::uint64_t shorter;  // places with codes of `bits` bits
  std::uint64_t turn;     // the first of these places
};

[[gnu::always_inline]] inline PlaceCode code_for(std::uint64_t places) noexcept {
  const unsigned bits = bit_width(places) - 1;
  const std::uint64_t shorter = (std::uint64_t{2} << bits) - places;
  return {places, bits, shorter, (places - shorter) / 2};
}

[[gnu::always_inline]] inline std::uint64_t places_of(const Stretch& stretch) noexcept {
  return std::uint64_t{stretch.high} - stretch.low + 1 - (stretch.end - stretch.begin - 1);
}

[[gnu::always_inline]] inline std::uint32_t middle_of(const Stretch& stretch) noexcept {
  return stretch.begin + (stretch.end - stretch.begin) / 2;
}

// The stretches to be coded, in their order.
class Halves {
 public:
  // Of `count` positions from `low` to `high`.
  [[gnu::always_inline]] Halves(std::uint32_t count, std::uint32_t low, std::uint32_t high) noexcept {
    waiting_[0] = {0, count, low, high};
  }

  [[gnu::always_inline]] bool next(Stretch& stretch) noexcept {
    if (count_ == 0) return false;
    stretch = waiting_[--count_];
    return true;
  }

  // Those below and above the middle one, which stands at `position`. What is empty is left out.
  [[gnu::always_inline]] void split(const Stretch& stretch, std::uint32_t middle,
                                    std::uint32_t position) noexcept {
    waiting_[count_] = {middle + 1, stretch.end, position + 1, stretch.high};
    count_ += middle + 1 < stretch.end ? 1 : 0;
    waiting_[count_] = {stretch.begin, middle, stretch.low, position - 1};
    count_ += stretch.begin < middle ? 1 : 0;
  }

 private:
  Stretch waiting_[kMostWaiting + 2];
  unsigned count_ = 1;
};

Fault read_ends(const ChunkBytes& chunk, std::uint64_t begin, std::uint64_t count,
                ChunkContent& content) noexcept {
  if (chunk.bytes < kEmptyHeadBytes) return &faults::kTruncated;
  content.positions = load_le<std::uint16_t>(chunk.at + 1);
  content.head_bytes = kInterpolativeHead;
  if (content.positions > kChunkPositions) return &faults::kCount;
  if (content.positions < 2) return &faults::kUnusedCode;
  if (chunk.bytes < kInterpolativeHead) return &faults::kTruncated;
  const std::uint64_t first = load_le<std::uint32_t>(chunk.at + kEmptyHeadBytes);
  const std::uint64_t last = load_le<std::uint32_t>(chunk.at + kHeadBytes);
  if (first < begin) return &faults::kOrder;
  if (first >= count || last >= count) return &faults::kPosition;
  if (last < first + content.positions - 1) return &faults::kLast;
  content.next = last + 1;
  return nullptr;
}

[[gnu::always_inline]] inline void take(const DecodeTarget& target, std::uint32_t number,
                                        std::uint32_t position) noexcept {
  if (target.positions != nullptr) {
    target.positions[number] = position;
  } else if (target.slot != nullptr) {
    float& slot = target.slot[position];
    slot = target.accumulate ? slot + target.value : target.value;
  }
}

// REQUIRES: read_ends() found no fault.
Fault decode_inner(const ChunkBytes& chunk, const DecodeTarget& target, ChunkContent& content) noexcept {
  const auto first = load_le<std::uint32_t>(chunk.at + kEmptyHeadBytes);
  const auto last = load_le<std::uint32_t>(chunk.at + kHeadBytes);
  take(target, 0, first);
  take(target, content.positions - 1, last);
  BitWindow stream{chunk.at + kInterpolativeHead, chunk.bytes - kInterpolativeHead};
  if (content.positions > 2) {
    Halves halves(content.positions - 2, first + 1, last - 1);
    for (Stretch stretch{}; halves.next(stretch);) {
      const PlaceCode code = code_for(places_of(stretch));
      const std::uint64_t window = stream.peek();
      std::uint64_t place = window & ((std::uint64_t{1} << code.bits) - 1);
      const unsigned longer = place >= code.shorter ? 1 : 0;
      if (longer != 0) place = place * 2 + (window >> code.bits & 1) - code.shorter;
      stream.position += code.bits + longer;
      if (stream.exhausted()) return &faults::kTruncated;
      place += code.turn;
      place -= place >= code.places ? code.places : 0;
      const std::uint32_t middle = middle_of(stretch);
      const std::uint32_t position =
          stretch.low + (middle - stretch.begin) + static_cast<std::uint32_t>(place);
      take(target, middle + 1, position);
      halves.split(stretch, middle, position);
    }
  }
  content.code_bits = stream.position;
  return stream.at_clean_end() ? nullptr : &faults::kPadding;
}

}  // namespace

std::uint32_t interpolate_chunk(const std::uint32_t* positions, std::uint32_t count, std::byte* out,
                                std::uint64_t out_bytes) {
  if (count < 2) return encode_chunk(positions, count, out, out_bytes);
  out[0] = static_cast<std::byte>(kInterpolativeCode);
  store_le(out + 1, static_cast<std::uint16_t>(count));
  store_le(out + kEmptyHeadBytes, positions[0]);
  store_le(out + kHeadBytes, positions[count - 1]);
  if (count == 2) return kInterpolativeHead;
  BitWriter stream(out + kInterpolativeHead, out_bytes - kInterpolativeHead);
  Halves halves(count - 2, positions[0] + 1, positions[count - 1] - 1);
  for (Stretch stretch{}; halves.next(stretch);) {
    const PlaceCode code = code_for(places_of(stretch));
    const std::uint32_t middle = middle_of(stretch);
    const std::uint32_t position = positions[middle + 1];
    std::uint64_t place = position - stretch.low - (middle - stretch.begin);
    place += place < code.turn ? code.places - code.turn : 0 - code.turn;
    if (place < code.shorter) {
      stream.put(place, code.bits);
    } else {
      place += code.shorter;
      stream.put(place >> 1 | (place & 1) << code.bits, code.bits + 1);
    }
    halves.split(stretch, middle, position);
  }
  return kInterpolativeHead + static_cast<std::uint32_t>(stream.finish());
}

ChunkContent decode_interpolated(const ChunkBytes& chunk, std::uint64_t begin, const DecodeTarget& target) {
  ChunkContent content{};
  content.next = begin;
  content.fault = read_ends(chunk, begin, target.count, content);
  if (content.fault == nullptr) content.fault = decode_inner(chunk, target, content);
  return content;
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
