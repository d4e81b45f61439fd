// Pairs in tiles, without a check for each: a tile is decoded, then looked at as a whole. Whatever is odd is
// left to the reference, from the chunk's beginning: it finds what is wrong.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/kernels/prefetch.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 8;
constexpr std::uint32_t kTile = 256;  // pairs
constexpr unsigned kFlagBitsInVectors = 3;
constexpr std::uint64_t kPeekBytes = 8;
constexpr unsigned kWordBits = 54;  // of a stream that a word has, wherever in a byte they begin

__m256i all_of(std::uint32_t value) noexcept {
  return _mm256_set1_epi32(static_cast<int>(value));
}

__m256i load(const std::uint32_t* at) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

// All bits of the lanes below `count`.
__m256i first_lanes(std::uint32_t count) noexcept {
  return _mm256_cmpgt_epi32(all_of(count < kLanes ? count : kLanes),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// Some pairs, with room for whole vectors behind them, and for the key before the first.
struct Tile {
  std::uint32_t all_keys[kLanes + kTile + kLanes];
  float values[kTile + kLanes];
  std::uint32_t pairs = 0;

  std::uint32_t* keys() noexcept { return all_keys + kLanes; }
};

// What must be readable of a stream: copied to where it is, with zeros behind it, if it lies too near to its
// end.
struct Readable {
  static constexpr std::uint64_t kMost =
      kTile * std::uint64_t{kMaxKeyBits + kFlagBitsInVectors} / 8 + 2 * kPeekBytes;
  std::byte copy[kMost];

  const std::byte* of(const BitWindow& stream, std::uint64_t first, std::uint64_t bytes) noexcept {
    if (first + bytes <= stream.bytes) return stream.at + first;
    const std::uint64_t left = first < stream.bytes ? stream.bytes - first : 0;
    std::memset(copy, 0, bytes);
    std::memcpy(copy, stream.at + first, left < bytes ? left : bytes);
    return copy;
  }
};

// Keys out of flags and gaps.
struct Gaps {
  BitWindow stream;
  std::uint64_t lengths = 0;  // of flag and gap in bits, a byte for each flag
  unsigned flag_bits = 0;
  unsigned longest = 0;        // of a flag and its gap
  std::uint32_t most[7] = {};  // the largest gaps that need no higher flag
  std::uint32_t lengths_of_flags[8] = {};
  std::uint64_t shortest_bits = 0;  // that the gaps could have taken
  __m256i all_gaps = _mm256_setzero_si256();

  Gaps(const BitWindow& gaps, unsigned key_bits, unsigned flag_bits_of_gaps) noexcept
      : stream(gaps), flag_bits(flag_bits_of_gaps) {
    if (key_bits == 0) return;  // nothing is written: codes of no bits, for gaps of 0
    const GapLengths of(key_bits, flag_bits);
    longest = flag_bits + key_bits;
    for (unsigned flag = 0; flag < 1U << flag_bits; ++flag) {
      lengths_of_flags[flag] = flag_bits + of.of_flag[flag];
      lengths |= std::uint64_t{lengths_of_flags[flag]} << 8 * flag;
    }
    for (unsigned flag = 0; flag < 7; ++flag) {
      const bool is_last = flag + 1 >= 1U << flag_bits;
      most[flag] =
          is_last ? 0xFFFFFFFF : static_cast<std::uint32_t>((std::uint64_t{1} << of.of_flag[flag]) - 1);
    }
  }

  // kTogether gaps of a word.
  template <unsigned kTogether>
  [[gnu::always_inline]] std::uint64_t read(const std::byte* from, std::uint64_t& position, std::uint64_t key,
                                            std::uint32_t count, std::uint32_t* keys) const noexcept {
    // A flag times 8 finds its length. The bits stay three places higher than they are, so that no gap waits
    // for another's multiplication; what three gaps leave below them is no flag.
    const std::uint64_t flags = ((std::uint64_t{1} << flag_bits) - 1) * 8;
    std::uint32_t i = 0;
    for (; i + kTogether <= count; i += kTogether) {
      std::uint64_t word = load_le<std::uint64_t>(from + position / 8) >> position % 8 << 3;
      for (unsigned j = 0; j < kTogether; ++j) {
        const std::uint64_t length = lengths >> (word & flags) & 0xFF;
        key += (_bzhi_u64(word >> 3, static_cast<unsigned>(length)) >> flag_bits) + 1;
        // Where the keys of a word are put together in a vector to be stored, that takes longer than reading
        // them.
        asm("" : "+r"(key));
        keys[i + j] = static_cast<std::uint32_t>(key);
        word >>= length;
        position += length;
      }
    }
    if constexpr (kTogether > 1) key = read<1>(from, position, key, count - i, keys + i);
    return key;
  }

  // Reads `count` keys that follow on `key`, and returns the last of them, maybe outside the tensor.
  std::uint64_t next(std::uint64_t key, std::uint32_t count, std::uint32_t* keys) noexcept {
    Readable readable;
    const std::uint64_t first = stream.position / 8;
    const std::byte* const from =
        readable.of(stream, first, std::uint64_t{count} * longest / 8 + 2 * kPeekBytes);
    std::uint64_t position = stream.position % 8;
    key = longest * 4 <= kWordBits ? read<4>(from, position, key, count, keys)
                                   : read<1>(from, position, key, count, keys);
    stream.position = first * 8 + position;
    return key;
  }

  // Adds up what shows whether flags and the longest gap are as they must be. keys[-1] is the key before.
  void look_at(const std::uint32_t* keys, std::uint32_t count) noexcept {
    const __m256i sign = all_of(0x80000000);
    const __m256i of_flags = load(lengths_of_flags);
    __m256i bits = _mm256_setzero_si256();
    for (std::uint32_t i = 0; i < count; i += kLanes) {
      const __m256i lanes = first_lanes(count - i);
      const __m256i distance = _mm256_sub_epi32(load(keys + i), load(keys + i - 1));
      const __m256i gaps = _mm256_and_si256(_mm256_sub_epi32(distance, all_of(1)), lanes);
      all_gaps = _mm256_or_si256(all_gaps, gaps);
      __m256i flags = _mm256_setzero_si256();
      for (unsigned flag = 0; flag + 1 < 1U << flag_bits; ++flag) {
        const __m256i larger =
            _mm256_cmpgt_epi32(_mm256_xor_si256(gaps, sign), all_of(most[flag] ^ 0x80000000));
        flags = _mm256_sub_epi32(flags, larger);
      }
      bits = _mm256_add_epi32(bits, _mm256_and_si256(_mm256_permutevar8x32_epi32(of_flags, flags), lanes));
    }
    std::uint32_t of_lanes[kLanes];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(of_lanes), bits);
    for (const std::uint32_t lane : of_lanes) shortest_bits += lane;
  }

  bool are_good(unsigned key_bits) const noexcept {
    std::uint32_t of_lanes[kLanes];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(of_lanes), all_gaps);
    std::uint32_t all = 0;
    for (const std::uint32_t lane : of_lanes) all |= lane;
    return shortest_bits == stream.position && !stream.exhausted() && stream.at_clean_end() &&
           bit_width(all) == key_bits;
  }
};

// Values out of codes.
struct Values {
  BitWindow stream;
  unsigned code_bits = 0;
  std::uint32_t allowed = 0;
  __m256i lowest = _mm256_set1_epi32(kMaxCode);
  __m256i highest = _mm256_setzero_si256();
  float of_code[kCodes];

  Values(const BitWindow& codes, const DecodeRules& rules, const Head& head, float scale) noexcept
      : stream(codes), code_bits(head.code_bits) {
    const std::uint32_t all = std::uint32_t{1} << code_bits;
    for (; allowed < all && head.base + allowed <= rules.last_code; ++allowed) {
      const float value = code_value(rules.sum, rules.powers, head.base + allowed);
      if (bit_cast<std::uint32_t>(value) == 0) break;
      of_code[allowed] = value * scale;
    }
    for (std::uint32_t code = allowed; code < all; ++code) of_code[code] = 0;
  }

  // Eight numbers of code_bits + 1 bits, which are as many bytes.
  __m256i numbers(const std::byte* from) const noexcept {
    const unsigned bits = code_bits + 1;
    if (bits <= 8) {
      const std::uint64_t mask = 0x0101010101010101 * ((1U << bits) - 1);
      const std::uint64_t bytes = _pdep_u64(load_le<std::uint64_t>(from), mask);
      return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(bytes)));
    }
    const std::uint64_t mask = 0x0001000100010001 * ((1U << bits) - 1);
    const unsigned half = 4 * bits;
    const std::uint64_t low = _pdep_u64(load_le<std::uint64_t>(from), mask);
    const std::uint64_t high = _pdep_u64(load_le<std::uint64_t>(from + half / 8) >> half % 8, mask);
    return _mm256_cvtepu16_epi32(_mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low)));
  }

  // The values of `count` pairs; whole vectors are written.
  void next(std::uint32_t count, float* values) noexcept {
    Readable readable;
    const unsigned bits = code_bits + 1;
    const std::byte* from =
        readable.of(stream, stream.position / 8, std::uint64_t{kTile} * bits / 8 + 2 * kPeekBytes);
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(31 - code_bits));
    for (std::uint32_t i = 0; i < count; i += kLanes) {
      const __m256i number = numbers(from);
      const __m256i code = _mm256_and_si256(number, all_of((1U << code_bits) - 1));
      const __m256i sign = _mm256_and_si256(_mm256_sll_epi32(number, shift), all_of(0x80000000));
      const __m256i value = _mm256_castps_si256(_mm256_i32gather_ps(of_code, code, 4));
      _mm256_storeu_ps(values + i, _mm256_castsi256_ps(_mm256_xor_si256(value, sign)));
      const __m256i lanes = first_lanes(count - i);
      lowest =
          _mm256_min_epu32(lowest, _mm256_or_si256(code, _mm256_andnot_si256(lanes, all_of(0xFFFFFFFF))));
      highest = _mm256_max_epu32(highest, _mm256_and_si256(code, lanes));
      from += bits;
    }
    stream.position += std::uint64_t{count} * bits;
  }

  bool are_good() const noexcept {
    std::uint32_t low[kLanes];
    std::uint32_t high[kLanes];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), lowest);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(high), highest);
    for (unsigned i = 1; i < kLanes; ++i) {
      low[0] = low[i] < low[0] ? low[i] : low[0];
      high[0] = high[i] > high[0] ? high[i] : high[0];
    }
    return low[0] == 0 && high[0] < allowed && bit_width(high[0]) == code_bits && stream.at_clean_end();
  }
};

template <Sink kSink>
void put(Tile& tile, DecodeTarget& target) noexcept {
  if constexpr (kSink == Sink::kDense) {
    for (std::uint32_t i = 0; i < tile.pairs; ++i) target.values[tile.keys()[i]] = tile.values[i];
  }
  if constexpr (kSink == Sink::kDenseAdd) {
    for (std::uint32_t i = 0; i < tile.pairs; ++i) target.values[tile.keys()[i]] += tile.values[i];
  }
}

// Where a tile's pairs are decoded to: where they belong, if whole vectors have room there.
struct Place {
  std::uint32_t* keys;
  float* values;
};

template <Sink kSink>
Place place_of(Tile& tile, std::uint32_t done, const DecodeTarget& target) noexcept {
  if (kSink == Sink::kPairs && done > 0 && tile.pairs == kTile) {
    return {target.keys + target.pairs + done, target.values + target.pairs + done};
  }
  return {tile.keys(), tile.values};
}

// Decodes the pairs of a tile; `key` is the one before, or the chunk's first. Returns whether none is outside
// the tensor.
bool read_tile(Values& values, Gaps& gaps, const Place& place, std::uint32_t pairs, bool is_first,
               std::uint64_t dimension, std::uint64_t& key) noexcept {
  // The first key stands in the head.
  std::uint32_t* const keys = place.keys + (is_first ? 1 : 0);
  const std::uint32_t count = pairs - (is_first ? 1 : 0);
  keys[-1] = static_cast<std::uint32_t>(key);
  key = gaps.next(key, count, keys);
  if (key >= dimension) return false;
  gaps.look_at(keys, count);
  values.next(pairs, place.values);
  return true;
}

// Returns whether all is as it must be.
template <Sink kSink>
bool read_pairs(const Head& head, const DecodeRules& rules, Values& values, Gaps& gaps,
                DecodeTarget& target) noexcept {
  constexpr bool kScattered = kSink == Sink::kDense || kSink == Sink::kDenseAdd;
  Tile tiles[2];  // what is decoded is added when its memory has arrived: after the next tile
  unsigned now = 0;
  std::uint64_t key = head.first_key;
  if (key >= rules.dimension) return false;
  for (std::uint32_t done = 0; done < head.pairs; done += kTile) {
    Tile& tile = tiles[now];
    const std::uint32_t left = head.pairs - done;
    tile.pairs = left < kTile ? left : kTile;
    const Place place = place_of<kSink>(tile, done, target);
    if (!read_tile(values, gaps, place, tile.pairs, done == 0, rules.dimension, key)) return false;
    if (kSink == Sink::kPairs && place.keys == tile.keys()) {
      std::memcpy(target.keys + target.pairs + done, tile.keys(), tile.pairs * sizeof(std::uint32_t));
      std::memcpy(target.values + target.pairs + done, tile.values, tile.pairs * sizeof(float));
    }
    if constexpr (kScattered) {
      for (std::uint32_t i = 0; i < tile.pairs; ++i) prefetch_far(target.values + tile.keys()[i]);
      put<kSink>(tiles[1 - now], target);
      now = 1 - now;
    }
  }
  if constexpr (kScattered) put<kSink>(tiles[1 - now], target);
  if (!values.are_good() || !gaps.are_good(head.key_bits)) return false;
  target.pairs += head.pairs;
  target.least_key = key + 1;
  return true;
}

bool decode(const ChunkBytes& chunk, const DecodeRules& rules, DecodeTarget& target) noexcept {
  Head head{};
  if (read_head(chunk, target.least_key == 0, target.is_last, head) != Fault::kNone) return false;
  const std::uint32_t value_bytes = (head.pairs * (head.code_bits + 1) + 7) / 8;
  if (head.pairs == 0 || value_bytes > chunk.bytes - kHeadBytes) return false;
  if (rules.flag_bits > kFlagBitsInVectors || head.first_key < target.least_key) return false;
  // Of two flags for the same length the wrong one would not be seen by the bits that it takes.
  if (head.key_bits > 0 && head.key_bits < 1U << rules.flag_bits) return false;
  if (target.sink == Sink::kPairs && head.pairs > target.capacity - target.pairs) return false;
  const std::byte* const at = chunk.at + kHeadBytes;
  Values values({at, value_bytes}, rules, head, target.scale);
  Gaps gaps({at + value_bytes, chunk.bytes - kHeadBytes - value_bytes}, head.key_bits, rules.flag_bits);
  switch (target.sink) {
    case Sink::kDense: return read_pairs<Sink::kDense>(head, rules, values, gaps, target);
    case Sink::kDenseAdd: return read_pairs<Sink::kDenseAdd>(head, rules, values, gaps, target);
    case Sink::kPairs: return read_pairs<Sink::kPairs>(head, rules, values, gaps, target);
    default: return read_pairs<Sink::kNothing>(head, rules, values, gaps, target);
  }
}

}  // namespace

Fault decode_chunk(const ChunkBytes& chunk, const DecodeRules& rules, DecodeTarget& target) {
  if (decode(chunk, rules, target)) return Fault::kNone;
  return kernels_for(TargetId::kReference).decode(chunk, rules, target);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
