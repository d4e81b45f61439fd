// Reference kernels.
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/baselines/logquant/logquant_ops.h"
#include "codecs/kernels/magnitude.h"

namespace deltawire::logquant::DELTAWIRE_TARGET {

namespace {

// Encoding: which values are sent, and their bytes.

std::uint32_t largest(const PairInput& input) {
  return largest_magnitude(input.in, input.residual, input.count);
}

// The level of a magnitude; 0 below the lowest.
int level_of(const Grid& grid, std::uint32_t magnitude) noexcept {
  if (magnitude == 0) return 0;
  const int level = nearest_step(magnitude, grid.steps) - grid.top + grid.top_level();
  if (level < 1) return 0;
  return level < grid.top_level() ? level : grid.top_level();
}

void collect(const PairInput& input, const Grid& grid, std::uint64_t& at, Staging& staging) {
  staging.pairs = 0;
  for (; at < input.count && staging.pairs < kChunkPairs; ++at) {
    const float x = input.residual != nullptr ? input.in[at] + input.residual[at] : input.in[at];
    const int level = level_of(grid, magnitude_bits(x));
    if (level == 0) {
      if (input.left != nullptr) input.left[at] = x;
      continue;
    }
    const std::uint32_t sign = bit_cast<std::uint32_t>(x) >> 31;
    staging.keys[staging.pairs] = input.keys != nullptr ? input.keys[at] : static_cast<std::uint32_t>(at);
    staging.numbers[staging.pairs] =
        static_cast<std::uint16_t>(static_cast<std::uint32_t>(level) | sign << grid.bits);
    ++staging.pairs;
    if (input.left == nullptr) continue;
    const float sent = level_value(grid, level);
    input.left[at] = x - (sign != 0 ? -sent : sent);
  }
}

void write_keys(const Staging& chunk, std::byte* out) noexcept {
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) store_le(out + i * kKeyBytes, chunk.keys[i]);
}

std::uint32_t write(const Staging& chunk, unsigned bits, std::byte* out) {
  const std::uint64_t elements =
      chunk.pairs > 0 ? std::uint64_t{chunk.keys[chunk.pairs - 1]} - chunk.keys[0] + 1 : 0;
  const bool dense = chunk.pairs > 0 && is_dense_shorter(chunk.pairs, elements, bits);
  store_le(out, static_cast<std::uint16_t>(chunk.pairs | (dense ? kDenseBit : 0)));
  if (chunk.pairs == 0) return kCountBytes;
  if (dense) {
    store_le(out + kCountBytes, chunk.keys[0]);
    store_le(out + kCountBytes + 4, static_cast<std::uint32_t>(elements));
  } else {
    write_keys(chunk, out + kCountBytes);
  }
  const std::uint32_t head = kCountBytes + (dense ? kDenseHeadBytes : kKeyBytes * chunk.pairs);
  const std::uint64_t numbers = dense ? elements : chunk.pairs;
  BitWriter writer(out + head, (numbers * (bits + 1) + 7) / 8);
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) {
    if (dense && i > 0) {
      for (std::uint32_t key = chunk.keys[i - 1] + 1; key < chunk.keys[i]; ++key) writer.put(0, bits + 1);
    }
    writer.put(chunk.numbers[i], bits + 1);
  }
  return head + static_cast<std::uint32_t>(writer.finish());
}

// Decoding a chunk of hostile bytes.

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
  return for_sink(target.sink, [&]<Sink kSink>() { return read_pairs<kSink>(chunk, head, grid, target); });
}

}  // namespace

extern constexpr Kernels kKernels = {largest, collect, write, read_head, decode_chunk};

}  // namespace deltawire::logquant::DELTAWIRE_TARGET
