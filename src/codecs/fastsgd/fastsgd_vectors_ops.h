// What vector kernels share. They encode 64 values at a time, and decode pairs in tiles, without checking
// each pair. A chunk that turns out to be invalid is decoded again by the reference, which finds the fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/kernels/prefetch.h"
#include "codecs/kernels/set_bits.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Collecting pairs, 64 values at a time.

inline constexpr std::uint32_t kGroup = 64;
inline constexpr std::uint32_t kFew = 8;  // of a group: fewer are taken one by one

// Where pairs are written: behind those that are there. Whole vectors may be.
struct PairOutput {
  std::uint32_t* keys = nullptr;
  float* values = nullptr;
};

template <bool kResidual, bool kKeys>
[[gnu::always_inline]] inline std::uint32_t take_few(const PairInput& input, std::uint64_t at,
                                                     std::uint64_t chosen, const PairOutput& out) noexcept {
  const std::uint32_t pairs = set_bits(chosen, 0, out.keys);
  for (std::uint32_t i = 0; i < pairs; ++i) {
    const std::uint64_t place = at + out.keys[i];
    out.values[i] = kResidual ? input.left[place] : input.in[place];
    out.keys[i] = kKeys ? input.keys[place] : static_cast<std::uint32_t>(place);
  }
  return pairs;
}

// Vectors, a target's group of values, made of the cut: look_at<kResidual>(input, at), which of 64 are sent,
// and x is left where there is a residual; take<kResidual, kKeys>(input, at, chosen, out), these pairs;
// rest<kResidual, kKeys>(input, at, count, out), the pairs of up to kRest values. The last two return how
// many they wrote.
template <bool kResidual, bool kKeys, class Vectors>
[[gnu::always_inline]] inline Collected collect_chunk(const PairInput& input, std::uint64_t& at,
                                                      std::uint32_t cut, const Staging& staging) noexcept {
  Vectors vectors(cut);
  std::uint32_t pairs = 0;
  while (input.count - at >= kGroup && pairs + kGroup <= kChunkPairs) {
    const PairOutput out{staging.keys + pairs, staging.values + pairs};
    const std::uint64_t chosen = vectors.template look_at<kResidual>(input, at);
    if (chosen != 0) {
      pairs += popcount(chosen) <= kFew ? take_few<kResidual, kKeys>(input, at, chosen, out)
                                        : vectors.template take<kResidual, kKeys>(input, at, chosen, out);
    }
    at += kGroup;
  }
  while (at < input.count && pairs < kChunkPairs) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t room = kChunkPairs - pairs;
    std::uint32_t count = left < Vectors::kRest ? static_cast<std::uint32_t>(left) : Vectors::kRest;
    count = room < count ? room : count;
    const PairOutput out{staging.keys + pairs, staging.values + pairs};
    pairs += vectors.template rest<kResidual, kKeys>(input, at, count, out);
    at += count;
  }
  return {staging.keys, staging.values, pairs, at};
}

// Kernels::collect. Vectors also: are_all_sent(values, count, cut), whether none of a row is dropped.
template <class Vectors>
[[gnu::always_inline]] inline Collected collect_by(const PairInput& input, std::uint64_t& at,
                                                   std::uint32_t cut, const Staging& staging) noexcept {
  if (input.keys != nullptr) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t row = left < kChunkPairs ? static_cast<std::uint32_t>(left) : kChunkPairs;
    if (!Vectors::are_all_sent(input.in + at, row, cut)) {
      return collect_chunk<false, true, Vectors>(input, at, cut, staging);
    }
    const Collected all{input.keys + at, input.in + at, row, at + row};
    at += row;
    return all;
  }
  return input.residual != nullptr ? collect_chunk<true, false, Vectors>(input, at, cut, staging)
                                   : collect_chunk<false, false, Vectors>(input, at, cut, staging);
}

// Guessed codes: the doubtful ones are decided one by one.

// Some values whose codes are guessed.
template <unsigned kLanes>
struct Guesses {
  alignas(32) std::uint32_t codes[kLanes];
  alignas(32) std::uint32_t magnitudes[kLanes];
  alignas(32) std::int32_t near[kLanes];  // the whole number nearest to the logarithm
};

// Decides the codes in the mask by comparing with their thresholds.
template <unsigned kLanes>
[[gnu::always_inline]] inline void decide(const Codebook& book, std::uint32_t mask,
                                          Guesses<kLanes>& guesses) noexcept {
  for (; mask != 0; mask &= mask - 1) {
    const unsigned lane = countr_zero(mask);
    const std::int32_t near = guesses.near[lane];
    std::uint32_t tried = near < 0 ? 0 : static_cast<std::uint32_t>(near);
    tried = tried < book.last ? tried : book.last;
    guesses.codes[lane] = tried + (guesses.magnitudes[lane] < book.values[tried] ? 1 : 0);
  }
}

// Leaves x less its code's value, of `count` pairs from `at` on.
[[gnu::always_inline]] inline void subtract(const PairInput& input, const Codebook& book,
                                            const Collected& pairs, const std::uint16_t* codes,
                                            std::uint32_t at, std::uint32_t count) noexcept {
  for (std::uint32_t i = at; i < at + count; ++i) {
    const std::uint32_t sign = bit_cast<std::uint32_t>(pairs.values[i]) & ~kMagnitudeMask;
    const std::uint32_t value = book.values[codes[i] & kMaxCode] | sign;
    input.left[pairs.keys[i]] = pairs.values[i] - bit_cast<float>(value);
  }
}

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

[[gnu::always_inline]] inline void fill_gaps(GapStream& gaps, unsigned key_bits,
                                             unsigned flag_bits) noexcept {
  const GapLengths of(key_bits, flag_bits);
  gaps.flag_bits = flag_bits;
  gaps.key_bits = key_bits;
  for (unsigned flag = 0; flag < 1U << flag_bits; ++flag) {
    gaps.masks[flag] = (1U << of.of_flag[flag]) - 1;
    gaps.least[flag] = static_cast<std::uint32_t>(of.least[flag]);
  }
}

// Consecutive keys: gaps of 0 take no bits.
[[gnu::always_inline]] inline void follow_on(KeyRun& run) noexcept {
  for (std::uint32_t i = 0; i < run.count; ++i) run.keys[i] = static_cast<std::uint32_t>(run.key + 1 + i);
  run.key += run.count;
}

// The table of a chunk's values.

// Values of the codes from the chunk's base on, as far as they are allowed, and behind them the same with the
// other sign: a number is a code below its sign.
[[gnu::always_inline]] inline void fill_values(ValueStream& values, const DecodeRules& rules,
                                               const Head& head, float scale) noexcept {
  values.code_bits = head.code_bits;
  const std::uint32_t all = std::uint32_t{1} << head.code_bits;
  for (; values.allowed < all && head.base + values.allowed <= rules.last_code; ++values.allowed) {
    const float value = code_value(rules.sum, rules.powers, head.base + values.allowed);
    if (bit_cast<std::uint32_t>(value) == 0) break;
    values.tables->of_number[values.allowed] = value * scale;
  }
  for (std::uint32_t code = values.allowed; code < all; ++code) values.tables->of_number[code] = 0;
  for (std::uint32_t code = 0; code < all; ++code) {
    const auto bits = bit_cast<std::uint32_t>(values.tables->of_number[code]);
    values.tables->of_number[all + code] = bit_cast<float>(bits ^ ~kMagnitudeMask);
  }
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
  return for_sink(target.sink, [&]<Sink kSink>() { return decode_chunk<kSink>(chunk, rules, target); });
}

Decoded decode_in_tiles(const ChunkRow& row, const DecodeRules& rules, DecodeTarget& target) {
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
    if (decoded.fault != Fault::kNone) break;
  }
  target.is_last = ends_part;
  return decoded;
}

}  // namespace

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

Fault place_in_tiles(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target) {
  const DecodeTarget before = target;
  if (place_tiles_for(chunk, rules, target)) return Fault::kNone;
  target = before;
  return kernels_for(TargetId::kReference).place_values(chunk, rules, target);
}

}  // namespace

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
