// How vector kernels decode: pairs in tiles, without a check for each. What is odd is seen when a chunk is
// done, and left to the reference, from the chunk's beginning: it finds what is wrong.
#pragma once

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

// Some pairs, with room for whole vectors behind them.
struct Tile {
  std::uint32_t keys[1 + kTile + kLanes];
  float values[kTile];
  std::uint32_t pairs = 0;
};

template <Sink kSink>
struct ChunkReader {
  static constexpr bool kScattered = kSink == Sink::kDense || kSink == Sink::kDenseAdd;

  Head head{};
  std::uint64_t key = 0;     // the first of the next tile
  std::uint64_t behind = 0;  // where in the target the pairs go: so many are before them
  std::uint32_t done = 0;
  GapStream gaps;
  ValueStream values{};
  ValueTables tables;
  Tile tiles[2];  // what is decoded is added when its memory has arrived: after the next tile
  unsigned now = 0;

  ChunkReader(const ChunkBytes& chunk, const Head& head_of_chunk, const DecodeRules& rules) noexcept
      : head(head_of_chunk), key(head.first_key), gaps{streams_of(chunk, head, rules.flag_bits)} {}

  // Whether the chunk is one for vectors, and can be read.
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

  // Decodes the next tile; false if a key is outside the tensor, or that is seen in the next.
  bool next(DecodeTarget& target) noexcept {
    Tile& tile = tiles[now];
    const std::uint32_t left = head.pairs - done;
    tile.pairs = left < kTile ? left : kTile;
    // One key more than pairs are read, the first of the next tile. Where there is one they all go where they
    // belong.
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

  // Whether all was as it must be.
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
  Head head;
  if (read_head(chunk, target.least_key == 0, target.is_last, head) != Fault::kNone) return false;
  if (head.pairs == 0) return false;
  ChunkReader<kSink> reader(chunk, head, rules);
  if (!reader.open(rules, target)) return false;
  while (reader.done < head.pairs) {
    if (!reader.next(target)) return false;
  }
  return reader.close(target);
}

bool decode_chunk_for(const ChunkBytes& chunk, const DecodeRules& rules, DecodeTarget& target) noexcept {
  switch (target.sink) {
    case Sink::kDense: return decode_chunk<Sink::kDense>(chunk, rules, target);
    case Sink::kDenseAdd: return decode_chunk<Sink::kDenseAdd>(chunk, rules, target);
    case Sink::kPairs: return decode_chunk<Sink::kPairs>(chunk, rules, target);
    default: return decode_chunk<Sink::kNothing>(chunk, rules, target);
  }
}

Decoded decode_in_tiles(const ChunkRow& row, const DecodeRules& rules, DecodeTarget& target) {
  const bool ends_part = target.is_last;
  Decoded decoded{};
  for (; decoded.chunks < row.chunks; ++decoded.chunks) {
    target.is_last = ends_part && decoded.chunks + 1 == row.chunks;
    const ChunkBytes& chunk = row.at[decoded.chunks];
    const DecodeTarget before = target;
    if (decode_chunk_for(chunk, rules, target)) continue;
    // Something is wrong, or the chunk is none for vectors: in that case nothing has been written.
    target = before;
    decoded.fault = kernels_for(TargetId::kReference).decode({&chunk, 1}, rules, target).fault;
    if (decoded.fault != Fault::kNone) break;
  }
  target.is_last = ends_part;
  return decoded;
}

}  // namespace

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
