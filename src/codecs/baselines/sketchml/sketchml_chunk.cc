#include "codecs/baselines/sketchml/sketchml_chunk.h"

#include <algorithm>
#include <span>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"

namespace deltawire::sketchml {

namespace {

// Columns of the table of so many keys. The product is exact: of 24 bits and 17.
std::uint32_t columns_for(const Rules& rules, std::uint32_t keys) noexcept {
  const double product = rules.columns * keys;
  const auto whole = static_cast<std::uint32_t>(product);
  return whole < product ? whole + 1 : whole;
}

// Where a key has its cell in a row.
std::uint32_t cell_of(const Rules& rules, std::uint32_t key, std::uint32_t row,
                      std::uint32_t columns) noexcept {
  const std::uint64_t drawn = rules.hashes.at(std::uint64_t{key} * kMaxRows + row) >> 32;
  return row * columns + static_cast<std::uint32_t>(drawn * columns >> 32);
}

// The buckets of one sign, and the groups that they lie in: bucket i in group floor(i groups / buckets).
struct Grouping {
  std::uint32_t buckets = 0;
  std::uint32_t groups = 0;

  Grouping(const Rules& rules, std::uint32_t of_sign) noexcept
      : buckets(of_sign), groups(of_sign < rules.groups ? of_sign : rules.groups) {}

  // The first bucket of a group, or behind the last group.
  std::uint32_t begin(std::uint32_t group) const noexcept { return (group * buckets + groups - 1) / groups; }
};

// The bytes of so many cells.
std::uint64_t cell_bytes(std::uint64_t cells, unsigned bits) noexcept {
  return (cells * bits + 7) / 8;
}

// Encoding. Quantiles of a chunk's values, and the bucket of each (section 3.2 of the paper).

// One pass of a radix sort by the 8 bits from `shift` on.
void sort_by_byte(const std::uint32_t* from, std::uint32_t count, unsigned shift,
                  std::uint32_t* to) noexcept {
  std::uint32_t place[257] = {};
  for (std::uint32_t i = 0; i < count; ++i) ++place[(from[i] >> shift & 255) + 1];
  for (std::uint32_t byte = 0; byte < 256; ++byte) place[byte + 1] += place[byte];
  for (std::uint32_t i = 0; i < count; ++i) to[place[from[i] >> shift & 255]++] = from[i];
}

// The magnitudes of one sign, ascending, into chunk.sorted; returns how many there are.
std::uint32_t sort_magnitudes(const Staging& chunk, std::uint32_t sign) noexcept {
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) {
    chunk.sorted[count] = magnitude_bits(chunk.values[i]);
    count += bit_cast<std::uint32_t>(chunk.values[i]) >> 31 == sign ? 1U : 0U;
  }
  for (unsigned shift = 0; shift < 32; shift += 16) {
    sort_by_byte(chunk.sorted, count, shift, chunk.spare);
    sort_by_byte(chunk.spare, count, shift + 8, chunk.sorted);
  }
  return count;
}

// Buckets that begin at the quantiles, those that begin alike being one.
void split(const std::uint32_t* sorted, std::uint32_t count, std::uint32_t most, Buckets& buckets) noexcept {
  buckets.count = 0;
  if (count == 0) return;
  const std::uint32_t wanted = count < most ? count : most;
  for (std::uint32_t i = 0; i < wanted; ++i) {
    const std::uint32_t lower = sorted[std::uint64_t{i} * count / wanted];
    if (buckets.count == 0 || lower > buckets.lower[buckets.count - 1])
      buckets.lower[buckets.count++] = lower;
  }
  for (std::uint32_t i = 0; i < buckets.count; ++i) {
    const std::uint32_t upper = i + 1 < buckets.count ? buckets.lower[i + 1] : sorted[count - 1];
    const auto low = static_cast<double>(bit_cast<float>(buckets.lower[i]));
    const auto high = static_cast<double>(bit_cast<float>(upper));
    buckets.mean[i] = static_cast<float>((low + high) / 2);
  }
}

// The last bucket that doesn't begin above the magnitude.
std::uint32_t bucket_of(const Buckets& buckets, std::uint32_t magnitude) noexcept {
  const std::span above_first(buckets.lower + 1, buckets.count - 1);
  return static_cast<std::uint32_t>(std::ranges::upper_bound(above_first, magnitude) - above_first.begin());
}

}  // namespace

void fill_buckets(const Rules& rules, const Staging& chunk, Buckets* of_sign) noexcept {
  for (std::uint32_t sign = 0; sign < kSigns; ++sign) {
    split(chunk.sorted, sort_magnitudes(chunk, sign), rules.buckets, of_sign[sign]);
  }
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) {
    const Buckets& buckets = of_sign[bit_cast<std::uint32_t>(chunk.values[i]) >> 31];
    chunk.buckets[i] = static_cast<std::uint8_t>(bucket_of(buckets, magnitude_bits(chunk.values[i])));
  }
}

void collect(const PairInput& input, std::uint64_t& at, Staging& staging) noexcept {
  staging.pairs = 0;
  for (; at < input.count && staging.pairs < kChunkPairs; ++at) {
    const float x = input.residual != nullptr ? input.in[at] + input.residual[at] : input.in[at];
    if (input.left != nullptr) input.left[at] = x;
    if (magnitude_bits(x) == 0) continue;
    staging.keys[staging.pairs] = input.keys != nullptr ? input.keys[at] : static_cast<std::uint32_t>(at);
    staging.values[staging.pairs++] = x;
  }
}

namespace {

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

}  // namespace

std::uint64_t write_chunk(const Rules& rules, const Staging& chunk, const Buckets* of_sign, std::byte* out,
                          float* left) noexcept {
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

namespace {

// Decoding a chunk of hostile bytes.

// A group's keys and its table, and how far its keys have been read.
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
    if (bytes > 1 && gap >> (8 * (bytes - 1)) == 0) return &faults::kGap;
    gaps += bytes;
    ++read;
    key = least + gap;
    least = key + 1;
    return key < dimension ? nullptr : &faults::kKey;
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
struct Rest {
  const std::byte* at;
  std::uint64_t left;

  // The next `bytes`; null if fewer are left.
  const std::byte* take(std::uint64_t bytes) noexcept {
    if (bytes > left) return nullptr;
    const std::byte* const taken = at;
    at += bytes;
    left -= bytes;
    return taken;
  }
};

// Finds where a group's streams lie; `limit` is the most keys that it can have.
Fault read_group(const Rules& rules, std::uint32_t limit, Rest& rest, List& list) noexcept {
  const std::byte* const head = rest.take(kGroupHeadBytes);
  if (head == nullptr) return &faults::kTruncated;
  list.keys = load_le<std::uint32_t>(head);
  if (list.keys == 0 || list.keys > limit) return &faults::kGroup;
  const std::uint32_t flag_bytes = (list.keys * kFlagBits + 7) / 8;
  list.flags = rest.take(flag_bytes);
  if (list.flags == nullptr) return &faults::kTruncated;
  const BitWindow flags{list.flags, flag_bytes, std::uint64_t{list.keys} * kFlagBits};
  if (!flags.at_clean_end()) return &faults::kPadding;
  std::uint64_t gap_bytes = 0;
  for (std::uint32_t i = 0; i < list.keys; ++i) gap_bytes += list.gap_bytes(i);
  list.gaps = rest.take(gap_bytes);
  if (list.gaps == nullptr) return &faults::kTruncated;
  list.columns = columns_for(rules, list.keys);
  const std::uint64_t table_bytes =
      cell_bytes(std::uint64_t{rules.rows} * list.columns, cell_bits(list.width));
  list.cells = {rest.take(table_bytes), table_bytes};
  return list.cells.at == nullptr ? &faults::kTruncated : nullptr;
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
    if (const Fault fault = list.next(dimension); fault != nullptr) return fault;
    for (std::uint32_t row = 0; row < rules.rows; ++row) {
      marks.set(cell_of(rules, static_cast<std::uint32_t>(list.key), row, list.columns));
    }
  }
  for (std::uint32_t cell = 0; cell < cells; ++cell) {
    const std::uint32_t number = list.cell(cell);
    if (number >= list.width || (number < list.width - 1 && !marks.has(cell))) return &faults::kCell;
  }
  list.cells.position = std::uint64_t{cells} * cell_bits(list.width);
  return list.cells.at_clean_end() ? nullptr : &faults::kPadding;
}

Fault check_means(const std::byte* means, std::uint32_t count) noexcept {
  std::uint32_t before = 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto mean = load_le<std::uint32_t>(means + std::size_t{kMeanBytes} * i);
    if (mean < before || mean >= kInfinityBits) return &faults::kMean;
    before = mean;
  }
  return nullptr;
}

// Finds and checks all groups of a chunk.
Fault open_lists(const ChunkBytes& chunk, const Rules& rules, DecodeTarget& target, Lists& lists) noexcept {
  if (chunk.bytes < kHeadBytes) return &faults::kTruncated;
  const auto pairs = load_le<std::uint32_t>(chunk.at);
  const auto first = load_le<std::uint32_t>(chunk.at + 4);
  const std::uint32_t buckets[kSigns] = {load_le<std::uint16_t>(chunk.at + 8),
                                         load_le<std::uint16_t>(chunk.at + 10)};
  const std::uint32_t all = buckets[0] + buckets[1];
  if (buckets[0] > rules.buckets || buckets[1] > rules.buckets || all > pairs || all == 0)
    return &faults::kBuckets;
  Rest rest{chunk.at + kHeadBytes, chunk.bytes - kHeadBytes};
  const std::byte* means = rest.take(std::uint64_t{all} * kMeanBytes);
  if (means == nullptr) return &faults::kTruncated;
  target.mean_bytes += std::uint64_t{all} * kMeanBytes;
  std::uint32_t keys = 0;
  for (std::uint32_t sign = 0; sign < kSigns; ++sign) {
    if (const Fault fault = check_means(means, buckets[sign]); fault != nullptr) return fault;
    const Grouping grouping(rules, buckets[sign]);
    for (std::uint32_t i = 0; i < grouping.groups; ++i) {
      List& list = lists.at[lists.count++];
      list.sign = sign;
      list.least = first;
      list.width = grouping.begin(i + 1) - grouping.begin(i);
      list.means = means + std::size_t{kMeanBytes} * grouping.begin(i);
      Fault fault = read_group(rules, pairs - keys, rest, list);
      if (fault == nullptr) fault = check_list(rules, target.dimension, list);
      if (fault != nullptr) return fault;
      keys += list.keys;
      target.key_bytes += static_cast<std::uint64_t>(list.cells.at - list.flags);
      target.table_bytes += list.cells.bytes;
    }
    means += std::size_t{kMeanBytes} * buckets[sign];
  }
  if (keys != pairs) return &faults::kGroup;
  return rest.left > 0 ? &faults::kTrailingBytes : nullptr;
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
  if (first < target.least_key) return &faults::kKey;
  for (std::uint32_t i = 0; i < lists.count; ++i) lists.at[i].next(target.dimension);
  if (first_of(lists).key != first) return &faults::kKey;
  target.least_key = first;
  while (lists.count > 0) {
    List& list = first_of(lists);
    if (list.key < target.least_key) return &faults::kKey;
    put_pair<kSink>(list.key, list.value(rules) * target.scale, target);
    target.least_key = list.key + 1;
    if (list.read < list.keys) {
      list.next(target.dimension);
    } else {
      list = lists.at[--lists.count];
    }
  }
  return nullptr;
}

}  // namespace

Fault decode_chunk(const ChunkBytes& chunk, const Rules& rules, DecodeTarget& target) noexcept {
  Lists lists;
  if (const Fault fault = open_lists(chunk, rules, target, lists); fault != nullptr) return fault;
  const auto pairs = load_le<std::uint32_t>(chunk.at);
  const auto first = load_le<std::uint32_t>(chunk.at + 4);
  if (target.sink == Sink::kPairs && pairs > target.capacity - target.pairs) return &faults::kNoRoom;
  return for_sink(target.sink, [&]<Sink kSink>() { return merge<kSink>(lists, rules, first, target); });
}

}  // namespace deltawire::sketchml
