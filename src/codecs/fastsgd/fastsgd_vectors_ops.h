// What kernels need that encode and decode by vectors, without vectors themselves. They decode pairs in
// tiles, without checking each pair. A chunk that turns out to be invalid is decoded again by the reference,
// which finds the fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "base/prefetch.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Streams.

inline constexpr unsigned kMostKeyBits = 31;  // a mask of 32 is no number of 32 bits plus 1

// From pair `begin` on.
[[gnu::always_inline]] inline ChunkPairs rest_of(const ChunkPairs& chunk, std::uint32_t begin) noexcept {
  return {chunk.keys + begin, chunk.codes + begin, chunk.pairs - begin, chunk.range};
}

// Appends words of up to 64 bits. A store always takes 8 bytes, as an Appender's.
class WordAppender {
 public:
  [[gnu::always_inline]] explicit WordAppender(std::byte* out) noexcept : out_(out) {}

  // `kIsShort`: of no more than 56 bits.
  template <bool kIsShort>
  [[gnu::always_inline]] void put(std::uint64_t word, unsigned bits) noexcept {
    const std::uint64_t joined = pending_ | word << filled_;
    store_le(out_, joined);
    const unsigned all = filled_ + bits;
    if constexpr (kIsShort) {
      pending_ = joined >> all / 8 * 8;
      out_ += all / 8;
      filled_ = all % 8;
    } else {
      const std::uint64_t rest = word >> 1 >> (63 - filled_);  // behind the 64 bits that are stored, or 0
      const std::uint64_t words = all / 64;
      pending_ = (joined & (words - 1)) | rest;  // without a branch: it would be mispredicted
      out_ += 8 * words;
      filled_ = all % 64;
    }
  }

  // The address behind the last bit, whose byte is filled with zero bits.
  [[gnu::always_inline]] std::byte* finish() noexcept {
    store_le(out_, pending_);
    return out_ + (filled_ + 7) / 8;
  }

 private:
  std::byte* out_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
};

// Keys.

// Bytes of a stream that a kernel reads at once: in place, or in a copy padded with zeros where they would
// reach past the chunk's end.
template <std::uint64_t kBytes>
struct Readable {
  std::byte copy[kBytes];

  [[gnu::always_inline]] const std::byte* of(const std::byte* at, const std::byte* end,
                                             std::uint64_t bytes) noexcept {
    const auto left = static_cast<std::uint64_t>(end > at ? end - at : 0);
    if (bytes <= left) return at;
    std::memset(copy, 0, bytes);
    if (left > 0) std::memcpy(copy, at, left);
    return copy;
  }
};

// Consecutive keys: gaps of 0 take no bits.
[[gnu::always_inline]] inline void follow_on(KeyRun& run) noexcept {
  for (std::uint32_t i = 0; i < run.count; ++i) run.keys[i] = static_cast<std::uint32_t>(run.key + 1 + i);
  run.key += run.count;
}

// The values of `count` numbers, and of one behind them. Two make a word: one store each would take as long
// as everything else.
[[gnu::always_inline]] inline void put_values(const ValueTables& tables, const std::uint16_t* numbers,
                                              std::uint32_t count, float* out) noexcept {
  for (std::uint32_t i = 0; i < count; i += 2) {
    const std::uint64_t low = bit_cast<std::uint32_t>(tables.of_number[numbers[i]]);
    const std::uint64_t high = bit_cast<std::uint32_t>(tables.of_number[numbers[i + 1]]);
    const std::uint64_t both = low | high << 32;
    std::memcpy(out + i, &both, sizeof both);
  }
}

// Chunks of keys and values.
namespace {

constexpr std::uint32_t kTileRoom = 8;  // numbers that a whole vector may write behind a tile

// Some pairs, with room for whole vectors behind them.
struct Tile {
  std::uint32_t keys[1 + kTile + kTileRoom];
  float values[kTile];
  std::uint32_t pairs = 0;
};

template <Sink kSink>
struct ChunkReader {
  static constexpr bool kScattered = kSink == Sink::kDense || kSink == Sink::kDenseAdd;

  Head head{};
  std::uint64_t key = 0;     // the first of the next tile
  std::uint64_t behind = 0;  // pairs in the target before this chunk's
  std::uint32_t done = 0;
  GapStream gaps;
  ValueStream values{};
  ValueTables tables;
  Tile tiles[2];  // what is decoded is added when its memory has arrived: after the next tile
  unsigned now = 0;

  ChunkReader(const ChunkBytes& chunk, const Head& head_of_chunk, const DecodeRules& rules) noexcept
      : head(head_of_chunk), key(head.first_key), gaps{streams_of(chunk, head, rules.flag_bits)} {}

  // Whether vectors can decode the chunk.
  bool open(const DecodeRules& rules, const DecodeTarget& target) noexcept {
    behind = target.pairs;
    if (gaps.streams.are_cut || key < target.least_key || key >= target.dimension) return false;
    if (rules.flag_bits > kVectorFlagBits || head.key_bits > kVectorKeyBits) return false;
    if (kSink == Sink::kPairs && head.pairs > target.capacity - behind) return false;
    values.stream = gaps.streams.values;
    values.tables = &tables;
    open_values(values, rules, head, target.scale);
    open_gaps(gaps, head.key_bits, rules.flag_bits);
    return true;
  }

  // Decodes the next tile; false if a key lies outside the tensor, be it the first of the tile after.
  bool next(DecodeTarget& target) noexcept {
    Tile& tile = tiles[now];
    const std::uint32_t left = head.pairs - done;
    tile.pairs = left < kTile ? left : kTile;
    // One key more than the tile's pairs is read, the first of the next tile. Before the last tile, pairs are
    // written straight to their place.
    const bool is_direct = kSink == Sink::kPairs && left > kTile;
    std::uint32_t* const keys = is_direct ? target.keys + behind + done : tile.keys;
    float* const places = is_direct ? target.values + behind + done : tile.values;
    keys[0] = static_cast<std::uint32_t>(key);
    KeyRun run{&gaps, key, left > kTile ? kTile : left - 1, keys + 1};
    read_keys(run);
    key = run.key;
    if (key >= target.dimension) return false;
    read_values(values, tile.pairs, places);
    if (kSink == Sink::kPairs && !is_direct) {
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
    const std::uint32_t* const at = tile.keys;
    if constexpr (kSink == Sink::kDense) {
      for (std::uint32_t i = 0; i < tile.pairs; ++i) target.values[at[i]] = tile.values[i];
    }
    if constexpr (kSink == Sink::kDenseAdd) {
      for (std::uint32_t i = 0; i < tile.pairs; ++i) target.values[at[i]] += tile.values[i];
    }
  }

  // Whether the chunk was valid.
  bool close(DecodeTarget& target) noexcept {
    if constexpr (kScattered) put(tiles[1 - now], target);
    const bool good_values = values.lowest == 0 && values.highest < values.allowed &&
                             bit_width(values.highest) == head.code_bits && values.stream.at_clean_end();
    const bool good_gaps = !gaps.has_wrong_flag && bit_width(gaps.all_gaps) == head.key_bits &&
                           gaps.streams.flags.at_clean_end() && !gaps.streams.gaps.exhausted() &&
                           gaps.streams.gaps.at_clean_end();
    target.pairs += head.pairs;
    target.least_key = key + 1;
    return good_values && good_gaps;
  }
};

template <Sink kSink>
bool decode_chunk(const ChunkBytes& chunk, const DecodeRules& rules, DecodeTarget& target) noexcept {
  Head head{};
  if (read_head(chunk, target.least_key == 0, target.is_last, head) != nullptr) return false;
  if (head.pairs == 0) return false;
  ChunkReader<kSink> reader(chunk, head, rules);
  if (!reader.open(rules, target)) return false;
  while (reader.done < head.pairs) {
    if (!reader.next(target)) return false;
  }
  return reader.close(target);
}

bool decode_chunk_for(const ChunkBytes& chunk, const DecodeRules& rules, DecodeTarget& target) noexcept {
  return for_sink(target.sink, [&]<Sink kSink>() { return decode_chunk<kSink>(chunk, rules, target); });
}

}  // namespace

Decoded decode_row(const ChunkRow& row, const DecodeRules& rules, DecodeTarget& target) {
  const bool ends_part = target.is_last;
  Decoded decoded{};
  for (; decoded.chunks < row.chunks; ++decoded.chunks) {
    target.is_last = ends_part && decoded.chunks + 1 == row.chunks;
    const ChunkBytes& chunk = row.at[decoded.chunks];
    const DecodeTarget before = target;
    if (decode_chunk_for(chunk, rules, target)) continue;
    // The chunk is invalid, or not one for vectors; then nothing has been written.
    target = before;
    decoded.fault = kernels_for(TargetId::kReference).decode({&chunk, 1}, rules, target).fault;
    if (decoded.fault != nullptr) break;
  }
  target.is_last = ends_part;
  return decoded;
}

// Values of keys that have been decoded before.
namespace {

template <Sink kSink>
void put_tile(const std::uint32_t* keys, const float* values, std::uint32_t count,
              DecodeTarget& target) noexcept {
  if constexpr (kSink == Sink::kDense) {
    for (std::uint32_t i = 0; i < count; ++i) target.values[keys[i]] = values[i];
  }
  if constexpr (kSink == Sink::kDenseAdd) {
    for (std::uint32_t i = 0; i < count; ++i) target.values[keys[i]] += values[i];
  }
  if constexpr (kSink == Sink::kPairs) {
    std::memcpy(target.keys + target.pairs, keys, count * sizeof *keys);
    std::memcpy(target.values + target.pairs, values, count * sizeof *values);
  }
  target.pairs += count;
}

template <Sink kSink>
bool place_tiles(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target) noexcept {
  ValueTables tables;
  ValueStream values{};
  values.stream = chunk.values;
  values.tables = &tables;
  open_values(values, rules, chunk.head, target.scale);
  float tile[kTile];
  for (std::uint32_t first = 0; first < chunk.head.pairs; first += kTile) {
    const std::uint32_t left = chunk.head.pairs - first;
    const std::uint32_t count = left < kTile ? left : kTile;
    if constexpr (kSink == Sink::kDense || kSink == Sink::kDenseAdd) {
      for (std::uint32_t i = 0; i < count; ++i) prefetch_far(target.values + chunk.keys[first + i]);
    }
    read_values(values, count, tile);
    put_tile<kSink>(chunk.keys + first, tile, count, target);
  }
  return values.lowest == 0 && values.highest < values.allowed &&
         bit_width(values.highest) == chunk.head.code_bits && values.stream.at_clean_end();
}

bool place_tiles_for(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target) noexcept {
  return for_sink(target.sink, [&]<Sink kSink>() { return place_tiles<kSink>(chunk, rules, target); });
}

}  // namespace

Fault place_values(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target) {
  const DecodeTarget before = target;
  if (place_tiles_for(chunk, rules, target)) return nullptr;
  target = before;
  return kernels_for(TargetId::kReference).place_values(chunk, rules, target);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
