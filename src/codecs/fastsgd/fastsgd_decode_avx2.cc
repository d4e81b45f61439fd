// Pairs in tiles, without a check for each: what is odd is seen when a chunk is done, and left to the
// reference, from the chunk's beginning: it finds what is wrong. Two chunks are read at a time.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/kernels/prefetch.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 8;

// Some pairs, with room for whole vectors behind them, and for the key before the first.
struct Tile {
  std::uint32_t all_keys[kLanes + kTile + kLanes];
  float values[kTile + kLanes];
  std::uint32_t pairs = 0;

  std::uint32_t* keys() noexcept { return all_keys + kLanes; }
};

void open_values(ValueStream& values, const DecodeRules& rules, const Head& head, float scale,
                 float* of_code) noexcept {
  values.of_code = of_code;
  values.code_bits = head.code_bits;
  const std::uint32_t all = std::uint32_t{1} << head.code_bits;
  for (; values.allowed < all && head.base + values.allowed <= rules.last_code; ++values.allowed) {
    const float value = code_value(rules.sum, rules.powers, head.base + values.allowed);
    if (bit_cast<std::uint32_t>(value) == 0) break;
    of_code[values.allowed] = value * scale;
  }
  for (std::uint32_t code = values.allowed; code < all; ++code) of_code[code] = 0;
}

template <Sink kSink>
struct ChunkReader {
  static constexpr bool kScattered = kSink == Sink::kDense || kSink == Sink::kDenseAdd;

  Head head{};
  std::uint64_t key = 0;     // the last, or the first to come
  std::uint64_t behind = 0;  // where in the target the pairs go: so many are before them
  std::uint32_t done = 0;
  GapStream gaps{};
  ValueStream values{};
  float of_code[kCodes];
  Tile tiles[2];  // what is decoded is added when its memory has arrived: after the next tile
  unsigned now = 0;
  std::uint32_t* keys = nullptr;  // where the tile is decoded to
  float* places = nullptr;

  // Whether the chunk is one for vectors, and its head is good.
  bool open(const ChunkBytes& chunk, const DecodeRules& rules, const DecodeTarget& target) noexcept {
    const std::uint32_t value_bytes = (head.pairs * (head.code_bits + 1) + 7) / 8;
    if (head.pairs == 0 || value_bytes > chunk.bytes - kHeadBytes) return false;
    // Of two flags for the same length the wrong one would not be seen by the bits that it takes.
    if (rules.flag_bits > kVectorFlagBits) return false;
    if (head.key_bits > 0 && head.key_bits < 1U << rules.flag_bits) return false;
    if (kSink == Sink::kPairs && head.pairs > target.capacity - behind) return false;
    key = head.first_key;
    if (key >= rules.dimension) return false;
    const std::byte* const at = chunk.at + kHeadBytes;
    values.stream = {at, value_bytes};
    open_values(values, rules, head, target.scale, of_code);
    open_gaps(gaps, {at + value_bytes, chunk.bytes - kHeadBytes - value_bytes}, head.key_bits,
              rules.flag_bits);
    return true;
  }

  bool is_done() const noexcept { return done == head.pairs; }

  // The keys of the next tile, for the caller to read. Where whole vectors have room they go where they
  // belong.
  KeyRun next_keys(const DecodeTarget& target) noexcept {
    Tile& tile = tiles[now];
    const std::uint32_t left = head.pairs - done;
    tile.pairs = left < kTile ? left : kTile;
    const bool is_first = done == 0;
    const bool is_direct = kSink == Sink::kPairs && !is_first && tile.pairs == kTile;
    keys = is_direct ? target.keys + behind + done : tile.keys();
    places = is_direct ? target.values + behind + done : tile.values;
    // The first key stands in the head.
    std::uint32_t* const to = keys + (is_first ? 1 : 0);
    to[-1] = static_cast<std::uint32_t>(key);
    return {&gaps, key, tile.pairs - (is_first ? 1 : 0), to};
  }

  // Takes the keys that were read; false if one is outside the tensor.
  bool take(const KeyRun& run, std::uint64_t dimension, DecodeTarget& target) noexcept {
    Tile& tile = tiles[now];
    key = run.key;
    if (key >= dimension) return false;
    look_at(gaps, run.keys, run.count);
    read_values(values, tile.pairs, places);
    if (kSink == Sink::kPairs && keys == tile.keys()) {
      std::memcpy(target.keys + behind + done, keys, tile.pairs * sizeof(std::uint32_t));
      std::memcpy(target.values + behind + done, places, tile.pairs * sizeof(float));
    }
    if constexpr (kScattered) {
      for (std::uint32_t i = 0; i < tile.pairs; ++i) prefetch_far(target.values + keys[i]);
      put(tiles[1 - now], target);
      now = 1 - now;
    }
    done += tile.pairs;
    return true;
  }

  static void put(Tile& tile, DecodeTarget& target) noexcept {
    const std::uint32_t* const at = tile.keys();
    if constexpr (kSink == Sink::kDense) {
      for (std::uint32_t i = 0; i < tile.pairs; ++i) target.values[at[i]] = tile.values[i];
    }
    if constexpr (kSink == Sink::kDenseAdd) {
      for (std::uint32_t i = 0; i < tile.pairs; ++i) target.values[at[i]] += tile.values[i];
    }
  }

  // Whether all was as it must be.
  bool close(DecodeTarget& target) noexcept {
    if constexpr (kScattered) put(tiles[1 - now], target);
    const bool good_values = values.lowest == 0 && values.highest < values.allowed &&
                             bit_width(values.highest) == head.code_bits && values.stream.at_clean_end();
    const bool good_gaps = gaps.shortest_bits == gaps.stream.position && !gaps.stream.exhausted() &&
                           gaps.stream.at_clean_end() && bit_width(gaps.all_gaps) == head.key_bits;
    target.pairs += head.pairs;
    target.least_key = key + 1;
    return good_values && good_gaps;
  }
};

// Decodes one chunk; its head has been read.
template <Sink kSink>
bool decode_one(const ChunkBytes& chunk, const Head& head, const DecodeRules& rules,
                DecodeTarget& target) noexcept {
  ChunkReader<kSink> reader;
  reader.head = head;
  reader.behind = target.pairs;
  if (!reader.open(chunk, rules, target)) return false;
  while (!reader.is_done()) {
    KeyRun run = reader.next_keys(target);
    read_keys(run);
    if (!reader.take(run, rules.dimension, target)) return false;
  }
  return reader.close(target);
}

// Decodes two full chunks.
template <Sink kSink>
bool decode_two(const ChunkBytes* chunks, const Head* heads, const DecodeRules& rules,
                DecodeTarget& target) noexcept {
  ChunkReader<kSink> readers[2];
  for (unsigned i = 0; i < 2; ++i) {
    readers[i].head = heads[i];
    readers[i].behind = target.pairs + (i == 0 ? 0 : heads[0].pairs);
    if (kSink == Sink::kPairs && readers[i].behind > target.capacity) return false;
    if (!readers[i].open(chunks[i], rules, target)) return false;
  }
  while (!readers[0].is_done()) {
    KeyRun runs[2] = {readers[0].next_keys(target), readers[1].next_keys(target)};
    read_keys_of_two(runs[0], runs[1]);
    for (unsigned i = 0; i < 2; ++i) {
      if (!readers[i].take(runs[i], rules.dimension, target)) return false;
    }
  }
  if (!readers[0].close(target) || heads[1].first_key < target.least_key) return false;
  return readers[1].close(target);
}

// Decodes one or two chunks from the front of the row; returns how many, 0 if something is odd.
template <Sink kSink>
std::uint32_t decode_front(const ChunkRow& row, const DecodeRules& rules, DecodeTarget& target) noexcept {
  Head heads[2] = {};
  const bool ends[2] = {target.is_last && row.chunks == 1, target.is_last && row.chunks == 2};
  if (read_head(row.at[0], target.least_key == 0, ends[0], heads[0]) != Fault::kNone) return 0;
  if (heads[0].pairs == 0 || heads[0].first_key < target.least_key) return 0;
  const bool are_two = row.chunks > 1 && read_head(row.at[1], false, ends[1], heads[1]) == Fault::kNone &&
                       heads[1].pairs == heads[0].pairs;
  if (are_two) return decode_two<kSink>(row.at, heads, rules, target) ? 2 : 0;
  return decode_one<kSink>(row.at[0], heads[0], rules, target) ? 1 : 0;
}

std::uint32_t decode_front_for(const ChunkRow& row, const DecodeRules& rules, DecodeTarget& target) noexcept {
  switch (target.sink) {
    case Sink::kDense: return decode_front<Sink::kDense>(row, rules, target);
    case Sink::kDenseAdd: return decode_front<Sink::kDenseAdd>(row, rules, target);
    case Sink::kPairs: return decode_front<Sink::kPairs>(row, rules, target);
    default: return decode_front<Sink::kNothing>(row, rules, target);
  }
}

}  // namespace

Decoded decode_row(const ChunkRow& row, const DecodeRules& rules, DecodeTarget& target) {
  Decoded decoded{};
  while (decoded.chunks < row.chunks) {
    const ChunkRow rest{row.at + decoded.chunks, row.chunks - decoded.chunks};
    const DecodeTarget before = target;
    const std::uint32_t chunks = decode_front_for(rest, rules, target);
    decoded.chunks += chunks;
    if (chunks > 0) continue;
    // Something is wrong, or a chunk is none for vectors: in that case nothing has been written.
    target = before;
    const ChunkRow one{rest.at, 1};
    target.is_last = before.is_last && rest.chunks == 1;
    decoded.fault = kernels_for(TargetId::kReference).decode(one, rules, target).fault;
    target.is_last = before.is_last;
    if (decoded.fault != Fault::kNone) break;
    ++decoded.chunks;
  }
  return decoded;
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
