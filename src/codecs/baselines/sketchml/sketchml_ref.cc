// Reference kernels: the pairs of a chunk, and its bytes. Reading is in sketchml_decode_ref.cc.
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/baselines/sketchml/sketchml_ops.h"
#include "codecs/kernels/magnitude.h"

namespace deltawire::sketchml::DELTAWIRE_TARGET {

namespace {

std::uint32_t largest(const PairInput& input) {
  return largest_magnitude(input.in, input.residual, input.count);
}

void collect(const PairInput& input, std::uint64_t& at, const Staging& staging, std::uint32_t& pairs) {
  pairs = 0;
  for (; at < input.count && pairs < kChunkPairs; ++at) {
    const float x = input.residual != nullptr ? input.in[at] + input.residual[at] : input.in[at];
    if (input.left != nullptr) input.left[at] = x;
    if (magnitude_bits(x) == 0) continue;
    staging.keys[pairs] = input.keys != nullptr ? input.keys[at] : static_cast<std::uint32_t>(at);
    staging.values[pairs++] = x;
  }
}

// The pairs of a chunk that lie in one group.
struct Group {
  const Staging& chunk;
  const std::uint32_t* pairs;  // their places in the chunk, ascending
  std::uint32_t keys;
  std::uint32_t begin;  // its first bucket
  std::uint32_t width;  // buckets

  std::uint32_t key(std::uint32_t i) const noexcept { return chunk.keys[pairs[i]]; }
  std::uint32_t number(std::uint32_t i) const noexcept { return chunk.buckets[pairs[i]] - begin; }
};

// The places of a chunk's pairs, sorted by group, in chunk.sorted.
struct Places {
  std::uint32_t end[kSigns][kMaxGroups] = {};

  Places(const Rules& rules, const Staging& chunk, const Buckets* of_sign) noexcept {
    std::uint8_t group_of[kSigns][kMaxBuckets];
    for (std::uint32_t sign = 0; sign < kSigns; ++sign) {
      const Grouping grouping(rules, of_sign[sign].count);
      for (std::uint32_t i = 0; i < of_sign[sign].count; ++i) {
        group_of[sign][i] = static_cast<std::uint8_t>(i * grouping.groups / grouping.buckets);
      }
    }
    std::uint32_t counts[kSigns][kMaxGroups] = {};
    for (std::uint32_t i = 0; i < chunk.pairs; ++i) {
      const std::uint32_t sign = bit_cast<std::uint32_t>(chunk.values[i]) >> 31;
      ++counts[sign][group_of[sign][chunk.buckets[i]]];
    }
    std::uint32_t before = 0;
    for (std::uint32_t sign = 0; sign < kSigns; ++sign) {
      for (std::uint32_t group = 0; group < kMaxGroups; ++group) {
        end[sign][group] = before;
        before += counts[sign][group];
      }
    }
    for (std::uint32_t i = 0; i < chunk.pairs; ++i) {
      const std::uint32_t sign = bit_cast<std::uint32_t>(chunk.values[i]) >> 31;
      chunk.sorted[end[sign][group_of[sign][chunk.buckets[i]]]++] = i;
    }
  }
};

// Flags, then gaps: the distance to the key before, less one, in as many bytes as it needs.
std::byte* write_keys(const Group& group, std::byte* out) noexcept {
  BitWriter flags(out, (std::uint64_t{group.keys} * kFlagBits + 7) / 8);
  std::byte* gaps = out + (group.keys * kFlagBits + 7) / 8;
  std::uint32_t least = group.chunk.keys[0];
  for (std::uint32_t i = 0; i < group.keys; ++i) {
    const std::uint32_t gap = group.key(i) - least;
    const unsigned bytes = gap < 256 ? 1 : (bit_width(gap) + 7) / 8;
    flags.put(bytes - 1, kFlagBits);
    for (unsigned byte = 0; byte < bytes; ++byte) *gaps++ = static_cast<std::byte>(gap >> (8 * byte) & 255);
    least = group.key(i) + 1;
  }
  flags.finish();
  return gaps;
}

// The table: each key's bucket goes to its cell of every row, and the smallest stays (section 3.3).
std::byte* write_table(const Rules& rules, const Group& group, std::byte* out) noexcept {
  const Staging& chunk = group.chunk;
  const std::uint32_t columns = columns_for(rules, group.keys);
  const std::uint32_t cells = rules.rows * columns;
  for (std::uint32_t cell = 0; cell < cells; ++cell)
    chunk.cells[cell] = static_cast<std::uint8_t>(group.width - 1);
  for (std::uint32_t i = 0; i < group.keys; ++i) {
    const auto number = static_cast<std::uint8_t>(group.number(i));
    for (std::uint32_t row = 0; row < rules.rows; ++row) {
      std::uint8_t& cell = chunk.cells[cell_of(rules, group.key(i), row, columns)];
      cell = number < cell ? number : cell;
    }
  }
  const unsigned bits = cell_bits(group.width);
  BitWriter writer(out, cell_bytes(cells, bits));
  for (std::uint32_t cell = 0; cell < cells; ++cell) writer.put(chunk.cells[cell], bits);
  return out + writer.finish();
}

// Takes what the receiver finds in the table from the residual.
void take_sent(const Rules& rules, const Group& group, const Buckets& buckets, float* left) noexcept {
  const Staging& chunk = group.chunk;
  const std::uint32_t columns = columns_for(rules, group.keys);
  for (std::uint32_t i = 0; i < group.keys; ++i) {
    std::uint32_t found = 0;
    for (std::uint32_t row = 0; row < rules.rows; ++row) {
      const std::uint32_t cell = chunk.cells[cell_of(rules, group.key(i), row, columns)];
      found = cell > found ? cell : found;
    }
    const float sent = buckets.mean[group.begin + found];
    float& rest = left[group.key(i)];
    rest -= rest < 0 ? -sent : sent;  // x still, whose sign is that of its group
  }
}

std::uint64_t write(const Rules& rules, const Staging& chunk, const Buckets* of_sign, std::byte* out,
                    float* left) {
  store_le(out, chunk.pairs);
  if (chunk.pairs == 0) return kCountBytes;
  store_le(out + 4, chunk.keys[0]);
  std::byte* at = out + kHeadBytes;
  for (std::uint32_t sign = 0; sign < kSigns; ++sign) {
    store_le(out + 8 + 2 * sign, static_cast<std::uint16_t>(of_sign[sign].count));
    for (std::uint32_t i = 0; i < of_sign[sign].count; ++i, at += kMeanBytes) {
      store_le(at, bit_cast<std::uint32_t>(of_sign[sign].mean[i]));
    }
  }
  const Places places(rules, chunk, of_sign);
  const std::uint32_t* pairs = chunk.sorted;
  for (std::uint32_t sign = 0; sign < kSigns; ++sign) {
    const Grouping grouping(rules, of_sign[sign].count);
    for (std::uint32_t i = 0; i < grouping.groups; ++i) {
      const auto keys = static_cast<std::uint32_t>(chunk.sorted + places.end[sign][i] - pairs);
      const std::uint32_t begin = grouping.begin(i);
      const Group group{chunk, pairs, keys, begin, grouping.begin(i + 1) - begin};
      store_le(at, keys);
      at = write_table(rules, group, write_keys(group, at + kGroupHeadBytes));
      if (left != nullptr) take_sent(rules, group, of_sign[sign], left);
      pairs += keys;
    }
  }
  return static_cast<std::uint64_t>(at - out);
}

}  // namespace

extern constexpr Kernels kKernels = {largest, collect, fill_buckets, write, decode_chunk};

}  // namespace deltawire::sketchml::DELTAWIRE_TARGET
