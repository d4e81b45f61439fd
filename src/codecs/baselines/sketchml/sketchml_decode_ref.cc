// Reference kernel: decoding a chunk of hostile bytes. Writing is in sketchml_ref.cc.
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/baselines/sketchml/sketchml_ops.h"

namespace deltawire::sketchml::DELTAWIRE_TARGET {

namespace {

// A group's keys and its table, wherever the reading of its keys has come to.
struct List {
  const std::byte* flags = nullptr;
  const std::byte* gaps = nullptr;
  std::uint32_t keys = 0;
  std::uint32_t read = 0;
  std::uint64_t key = 0;    // the last that was read
  std::uint64_t least = 0;  // what the next gap is counted from
  BitWindow cells;
  std::uint32_t columns = 0;
  std::uint32_t width = 0;           // buckets
  const std::byte* means = nullptr;  // of its first bucket
  std::uint32_t sign = 0;

  unsigned gap_bytes(std::uint32_t i) const noexcept {
    return (static_cast<unsigned>(flags[i / 4]) >> (i % 4 * kFlagBits) & 3) + 1;
  }

  // Moves on to the next key. REQUIRES: read < keys.
  Fault next(std::uint64_t dimension) noexcept {
    const unsigned bytes = gap_bytes(read);
    std::uint32_t gap = 0;
    for (unsigned byte = 0; byte < bytes; ++byte) gap |= static_cast<std::uint32_t>(gaps[byte]) << (8 * byte);
    if (bytes > 1 && gap >> (8 * (bytes - 1)) == 0) return Fault::kGap;
    gaps += bytes;
    ++read;
    key = least + gap;
    least = key + 1;
    return key < dimension ? Fault::kNone : Fault::kKey;
  }

  std::uint32_t cell(std::uint32_t at) const noexcept {
    BitWindow window = cells;
    const unsigned bits = cell_bits(width);
    window.position = std::uint64_t{at} * bits;
    return static_cast<std::uint32_t>(window.peek() & ((1U << bits) - 1));
  }

  // What the table says of the key that was read last, with its sign.
  float value(const Rules& rules) const noexcept {
    std::uint32_t found = 0;
    for (std::uint32_t row = 0; row < rules.rows; ++row) {
      const std::uint32_t number = cell(cell_of(rules, static_cast<std::uint32_t>(key), row, columns));
      found = number > found ? number : found;
    }
    const auto mean = bit_cast<float>(load_le<std::uint32_t>(means + std::size_t{kMeanBytes} * found));
    return sign != 0 ? -mean : mean;
  }
};

struct Lists {
  List at[kSigns * kMaxGroups];
  std::uint32_t count = 0;
};

// The rest of a chunk's bytes.
struct Bytes {
  const std::byte* at;
  std::uint64_t left;

  // The next so many; null where there are fewer.
  const std::byte* take(std::uint64_t bytes) noexcept {
    if (bytes > left) return nullptr;
    const std::byte* const taken = at;
    at += bytes;
    left -= bytes;
    return taken;
  }
};

// Finds where a group's streams lie; `limit` is the most keys that it can have.
Fault read_group(const Rules& rules, std::uint32_t limit, Bytes& bytes, List& list) noexcept {
  const std::byte* const head = bytes.take(kGroupHeadBytes);
  if (head == nullptr) return Fault::kTruncated;
  list.keys = load_le<std::uint32_t>(head);
  if (list.keys == 0 || list.keys > limit) return Fault::kGroup;
  const std::uint32_t flag_bytes = (list.keys * kFlagBits + 7) / 8;
  list.flags = bytes.take(flag_bytes);
  if (list.flags == nullptr) return Fault::kTruncated;
  const BitWindow flags{list.flags, flag_bytes, std::uint64_t{list.keys} * kFlagBits};
  if (!flags.at_clean_end()) return Fault::kPadding;
  std::uint64_t gap_bytes = 0;
  for (std::uint32_t i = 0; i < list.keys; ++i) gap_bytes += list.gap_bytes(i);
  list.gaps = bytes.take(gap_bytes);
  if (list.gaps == nullptr) return Fault::kTruncated;
  list.columns = columns_for(rules, list.keys);
  const std::uint64_t table_bytes =
      cell_bytes(std::uint64_t{rules.rows} * list.columns, cell_bits(list.width));
  list.cells = {bytes.take(table_bytes), table_bytes};
  return list.cells.at == nullptr ? Fault::kTruncated : Fault::kNone;
}

// Which cells of a table some key has.
struct Marks {
  static constexpr std::uint32_t kWordBits = 64;
  std::uint64_t words[kMaxRows * kChunkPairs / kWordBits];

  explicit Marks(std::uint32_t cells) noexcept {
    for (std::uint32_t i = 0; i <= (cells - 1) / kWordBits; ++i) words[i] = 0;
  }

  void set(std::uint32_t cell) noexcept { words[cell / kWordBits] |= std::uint64_t{1} << cell % kWordBits; }
  bool has(std::uint32_t cell) const noexcept {
    return (words[cell / kWordBits] >> cell % kWordBits & 1) != 0;
  }
};

// Reads all keys of a copy of the list, and looks at every cell.
Fault check_list(const Rules& rules, std::uint64_t dimension, List list) noexcept {
  const std::uint32_t cells = rules.rows * list.columns;
  Marks marks(cells);
  while (list.read < list.keys) {
    if (const Fault fault = list.next(dimension); fault != Fault::kNone) return fault;
    for (std::uint32_t row = 0; row < rules.rows; ++row) {
      marks.set(cell_of(rules, static_cast<std::uint32_t>(list.key), row, list.columns));
    }
  }
  for (std::uint32_t cell = 0; cell < cells; ++cell) {
    const std::uint32_t number = list.cell(cell);
    if (number >= list.width || (number < list.width - 1 && !marks.has(cell))) return Fault::kCell;
  }
  list.cells.position = std::uint64_t{cells} * cell_bits(list.width);
  return list.cells.at_clean_end() ? Fault::kNone : Fault::kPadding;
}

Fault check_means(const std::byte* means, std::uint32_t count) noexcept {
  std::uint32_t before = 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto mean = load_le<std::uint32_t>(means + std::size_t{kMeanBytes} * i);
    if (mean < before || mean >= kInfinityBits) return Fault::kMean;
    before = mean;
  }
  return Fault::kNone;
}

// Finds and checks all groups of a chunk.
Fault open_lists(const ChunkBytes& chunk, const Rules& rules, DecodeTarget& target, Lists& lists) noexcept {
  if (chunk.bytes < kHeadBytes) return Fault::kTruncated;
  const auto pairs = load_le<std::uint32_t>(chunk.at);
  const auto first = load_le<std::uint32_t>(chunk.at + 4);
  const std::uint32_t buckets[kSigns] = {load_le<std::uint16_t>(chunk.at + 8),
                                         load_le<std::uint16_t>(chunk.at + 10)};
  const std::uint32_t all = buckets[0] + buckets[1];
  if (buckets[0] > rules.buckets || buckets[1] > rules.buckets || all > pairs || all == 0)
    return Fault::kBuckets;
  Bytes bytes{chunk.at + kHeadBytes, chunk.bytes - kHeadBytes};
  const std::byte* means = bytes.take(std::uint64_t{all} * kMeanBytes);
  if (means == nullptr) return Fault::kTruncated;
  target.mean_bytes += std::uint64_t{all} * kMeanBytes;
  std::uint32_t keys = 0;
  for (std::uint32_t sign = 0; sign < kSigns; ++sign) {
    if (const Fault fault = check_means(means, buckets[sign]); fault != Fault::kNone) return fault;
    const Grouping grouping(rules, buckets[sign]);
    for (std::uint32_t i = 0; i < grouping.groups; ++i) {
      List& list = lists.at[lists.count++];
      list.sign = sign;
      list.least = first;
      list.width = grouping.begin(i + 1) - grouping.begin(i);
      list.means = means + std::size_t{kMeanBytes} * grouping.begin(i);
      Fault fault = read_group(rules, pairs - keys, bytes, list);
      if (fault == Fault::kNone) fault = check_list(rules, target.dimension, list);
      if (fault != Fault::kNone) return fault;
      keys += list.keys;
      target.key_bytes += static_cast<std::uint64_t>(list.cells.at - list.flags);
      target.table_bytes += list.cells.bytes;
    }
    means += std::size_t{kMeanBytes} * buckets[sign];
  }
  if (keys != pairs) return Fault::kGroup;
  return bytes.left > 0 ? Fault::kTrailingBytes : Fault::kNone;
}

// The list with the smallest next key. REQUIRES: there is a list.
List& first_of(Lists& lists) noexcept {
  std::uint32_t best = 0;
  for (std::uint32_t i = 1; i < lists.count; ++i) best = lists.at[i].key < lists.at[best].key ? i : best;
  return lists.at[best];
}

// Hands out the pairs of all lists, ascending.
template <Sink kSink>
Fault merge(Lists& lists, const Rules& rules, std::uint32_t first, DecodeTarget& target) noexcept {
  if (first < target.least_key) return Fault::kKey;
  for (std::uint32_t i = 0; i < lists.count; ++i) lists.at[i].next(target.dimension);
  if (first_of(lists).key != first) return Fault::kKey;
  target.least_key = first;
  while (lists.count > 0) {
    List& list = first_of(lists);
    if (list.key < target.least_key) return Fault::kKey;
    put_pair<kSink>(list.key, list.value(rules) * target.scale, target);
    target.least_key = list.key + 1;
    if (list.read < list.keys) {
      list.next(target.dimension);
    } else {
      list = lists.at[--lists.count];
    }
  }
  return Fault::kNone;
}

}  // namespace

Fault decode_chunk(const ChunkBytes& chunk, const Rules& rules, DecodeTarget& target) {
  Lists lists;
  if (const Fault fault = open_lists(chunk, rules, target, lists); fault != Fault::kNone) return fault;
  const auto pairs = load_le<std::uint32_t>(chunk.at);
  const auto first = load_le<std::uint32_t>(chunk.at + 4);
  switch (target.sink) {
    case Sink::kDense: return merge<Sink::kDense>(lists, rules, first, target);
    case Sink::kDenseAdd: return merge<Sink::kDenseAdd>(lists, rules, first, target);
    case Sink::kPairs:
      if (pairs > target.capacity - target.pairs) return Fault::kNoRoom;
      return merge<Sink::kPairs>(lists, rules, first, target);
    default: return merge<Sink::kNothing>(lists, rules, first, target);
  }
}

}  // namespace deltawire::sketchml::DELTAWIRE_TARGET
