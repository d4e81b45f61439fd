// Reference kernels: decoding a chunk of hostile bytes. Writing is in logquant_ref.cc.
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/baselines/logquant/logquant_ops.h"

namespace deltawire::logquant::DELTAWIRE_TARGET {

namespace {

// Scaled values of the numbers, as far as they are allowed.
struct Values {
  float of_level[1U << kMaxBits];
  std::uint32_t least = 0;
  std::uint32_t sign_bit = 0;

  Values(const Grid& grid, float scale) noexcept
      : least(static_cast<std::uint32_t>(least_level(grid))), sign_bit(1U << grid.bits) {
    for (int level = least_level(grid); level <= grid.top_level(); ++level) {
      of_level[level] = level_value(grid, level) * scale;
    }
  }

  bool has(std::uint32_t number) const noexcept { return (number & (sign_bit - 1)) >= least; }

  float value(std::uint32_t number) const noexcept {
    const float magnitude = of_level[number & (sign_bit - 1)];
    return (number & sign_bit) != 0 ? -magnitude : magnitude;
  }
};

// The numbers of a chunk, one after the other.
struct Numbers {
  BitWindow stream;
  unsigned width;

  std::uint32_t next() noexcept {
    const auto number = static_cast<std::uint32_t>(stream.peek() & ((1U << width) - 1));
    stream.position += width;
    return number;
  }
};

template <Sink kSink>
Fault read_keyed(const std::byte* keys, const Head& head, const Values& values, Numbers& numbers,
                 PairTarget& target) noexcept {
  for (std::uint32_t i = 0; i < head.pairs; ++i) {
    const std::uint64_t key = load_le<std::uint32_t>(keys + i * kKeyBytes);
    if (key < target.least_key || key >= target.dimension) return Fault::kKey;
    const std::uint32_t number = numbers.next();
    if (!values.has(number)) return Fault::kLevel;
    put_pair<kSink>(key, values.value(number), target);
    target.least_key = key + 1;
  }
  const auto first = load_le<std::uint32_t>(keys);
  return is_dense_shorter(head.pairs, target.least_key - first, numbers.width - 1) ? Fault::kForm
                                                                                   : Fault::kNone;
}

template <Sink kSink>
Fault read_dense(const Head& head, const Values& values, Numbers& numbers, PairTarget& target) noexcept {
  if (head.first < target.least_key) return Fault::kKey;
  if (head.elements > target.dimension || head.first > target.dimension - head.elements) return Fault::kKey;
  std::uint32_t pairs = 0;
  for (std::uint32_t i = 0; i < head.elements; ++i) {
    const std::uint32_t number = numbers.next();
    if (number == 0 && i > 0 && i + 1 < head.elements) continue;
    if (number == 0 || pairs == head.pairs) return Fault::kCount;
    if (!values.has(number)) return Fault::kLevel;
    put_pair<kSink>(std::uint64_t{head.first} + i, values.value(number), target);
    ++pairs;
  }
  target.least_key = std::uint64_t{head.first} + head.elements;
  return pairs == head.pairs ? Fault::kNone : Fault::kCount;
}

template <Sink kSink>
Fault read_pairs(const ChunkBytes& chunk, const Head& head, const Grid& grid, PairTarget& target) noexcept {
  if (kSink == Sink::kPairs && head.pairs > target.capacity - target.pairs) return Fault::kNoRoom;
  const Values values(grid, target.scale);
  Numbers numbers{{chunk.at + head.bytes, head.value_bytes}, grid.bits + 1};
  const Fault fault = head.dense ? read_dense<kSink>(head, values, numbers, target)
                                 : read_keyed<kSink>(chunk.at + kCountBytes, head, values, numbers, target);
  if (fault != Fault::kNone) return fault;
  return numbers.stream.at_clean_end() ? Fault::kNone : Fault::kPadding;
}

}  // namespace

Fault read_head(const ChunkBytes& chunk, bool is_last, unsigned bits, Head& head) {
  if (chunk.bytes < kCountBytes) return Fault::kTruncated;
  const std::uint32_t word = load_le<std::uint16_t>(chunk.at);
  head.pairs = word & ~kDenseBit;
  head.dense = (word & kDenseBit) != 0;
  if (head.pairs > kChunkPairs || (!is_last && head.pairs != kChunkPairs)) return Fault::kPairCount;
  if (head.pairs == 0) {
    if (head.dense) return Fault::kForm;
    return chunk.bytes > kCountBytes ? Fault::kTrailingBytes : Fault::kNone;
  }
  head.bytes = kCountBytes + (head.dense ? kDenseHeadBytes : kKeyBytes * head.pairs);
  if (chunk.bytes < head.bytes) return Fault::kTruncated;
  head.elements = head.pairs;
  if (head.dense) {
    head.first = load_le<std::uint32_t>(chunk.at + kCountBytes);
    head.elements = load_le<std::uint32_t>(chunk.at + kCountBytes + 4);
    if (!is_dense_shorter(head.pairs, head.elements, bits)) return Fault::kForm;
  }
  // Small: a dense chunk has no more bytes than its keys would take.
  head.value_bytes = static_cast<std::uint32_t>((std::uint64_t{head.elements} * (bits + 1) + 7) / 8);
  if (head.value_bytes > chunk.bytes - head.bytes) return Fault::kTruncated;
  return head.value_bytes < chunk.bytes - head.bytes ? Fault::kTrailingBytes : Fault::kNone;
}

Fault decode_chunk(const ChunkBytes& chunk, const Head& head, const Grid& grid, PairTarget& target) {
  switch (target.sink) {
    case Sink::kDense: return read_pairs<Sink::kDense>(chunk, head, grid, target);
    case Sink::kDenseAdd: return read_pairs<Sink::kDenseAdd>(chunk, head, grid, target);
    case Sink::kPairs: return read_pairs<Sink::kPairs>(chunk, head, grid, target);
    default: return read_pairs<Sink::kNothing>(chunk, head, grid, target);
  }
}

}  // namespace deltawire::logquant::DELTAWIRE_TARGET
