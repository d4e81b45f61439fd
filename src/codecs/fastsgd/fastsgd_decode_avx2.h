// Decoding for AVX2, and for AVX-512 with VBMI, which has a way of its own to read values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_decode_ops.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Keys out of flags and gaps, in three steps: flags become masks; masks say where gaps lie in the stream,
// which none waits for that follows; and gaps are added up.
namespace {

constexpr std::uint32_t kLanes = 16;       // flags that are looked at together
constexpr std::uint64_t kFlagsBytes = 16;  // that are read at a time
constexpr std::uint64_t kPeekBytes = 9;    // of gaps

// Where 16 flags lie in their bytes, two of which have all of one.
struct FlagPlaces {
  alignas(32) std::uint8_t bytes[32] = {};
  alignas(32) std::uint16_t factors[16] = {};  // bring the flag to the top of the 16 bits

  constexpr explicit FlagPlaces(unsigned flag_bits) noexcept {
    for (unsigned i = 0; i < kLanes; ++i) {
      const unsigned bit = i * flag_bits;
      bytes[2 * i] = static_cast<std::uint8_t>(bit / 8);
      bytes[2 * i + 1] = static_cast<std::uint8_t>(bit / 8 + 1);
      factors[i] = static_cast<std::uint16_t>(1U << (16 - flag_bits - bit % 8));
    }
  }
};

__m256i load(const void* at) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}

void store(void* at, __m256i bits) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(at), bits);
}

__m256i all_of(std::uint32_t value) noexcept {
  return _mm256_set1_epi32(static_cast<int>(value));
}

// Sixteen flags in 16 bits each.
template <unsigned kFlagBits>
__m256i flags_of(const std::byte* from) noexcept {
  static constexpr FlagPlaces kPlaces(kFlagBits);
  const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const __m256i pairs = _mm256_shuffle_epi8(bytes, load(kPlaces.bytes));
  return _mm256_srli_epi16(_mm256_mullo_epi16(pairs, load(kPlaces.factors)), 16 - kFlagBits);
}

// The gaps of a tile, and what their flags say of them, in numbers of 8, 16 or 32 bits.
template <class Number>
struct Gaps {
  static constexpr std::uint32_t kInWord = 8 / sizeof(Number);

  alignas(64) Number masks[kTile + kLanes];
  alignas(64) Number least[kTile];
  alignas(64) Number gaps[kTile + kLanes];
};

// A table of numbers of 16 bits: their low bytes, and their high bytes.
__m256i bytes_of(const std::uint32_t (&numbers)[8]) noexcept {
  alignas(16) std::uint8_t bytes[16];
  for (unsigned i = 0; i < 8; ++i) {
    bytes[i] = static_cast<std::uint8_t>(numbers[i]);
    bytes[8 + i] = static_cast<std::uint8_t>(numbers[i] >> 8);
  }
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)));
}

__m128i joined(__m256i halves) noexcept {
  return _mm_packus_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}

template <unsigned kFlagBits>
void look_up(const GapStream& stream, const std::byte* flags, std::uint32_t count,
             Gaps<std::uint8_t>& tile) noexcept {
  const __m128i masks = _mm256_castsi256_si128(bytes_of(stream.masks));
  const __m128i least = _mm256_castsi256_si128(bytes_of(stream.least));
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    const __m128i flag = joined(flags_of<kFlagBits>(flags + i * kFlagBits / 8));
    _mm_store_si128(reinterpret_cast<__m128i*>(tile.masks + i), _mm_shuffle_epi8(masks, flag));
    _mm_store_si128(reinterpret_cast<__m128i*>(tile.least + i), _mm_shuffle_epi8(least, flag));
  }
}

template <unsigned kFlagBits>
void look_up(const GapStream& stream, const std::byte* flags, std::uint32_t count,
             Gaps<std::uint16_t>& tile) noexcept {
  const __m256i masks = bytes_of(stream.masks);
  const __m256i least = bytes_of(stream.least);
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    const __m256i flag = flags_of<kFlagBits>(flags + i * kFlagBits / 8);
    const __m256i places =
        _mm256_add_epi16(_mm256_mullo_epi16(flag, _mm256_set1_epi16(0x0101)), _mm256_set1_epi16(0x0800));
    store(tile.masks + i, _mm256_shuffle_epi8(masks, places));
    store(tile.least + i, _mm256_shuffle_epi8(least, places));
  }
}

template <unsigned kFlagBits>
void look_up(const GapStream& stream, const std::byte* flags, std::uint32_t count,
             Gaps<std::uint32_t>& tile) noexcept {
  const __m256i masks = load(stream.masks);
  const __m256i least = load(stream.least);
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    const __m256i flag = flags_of<kFlagBits>(flags + i * kFlagBits / 8);
    const __m256i halves[2] = {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(flag)),
                               _mm256_cvtepu16_epi32(_mm256_extracti128_si256(flag, 1))};
    for (unsigned half = 0; half < 2; ++half) {
      store(tile.masks + i + 8 * half, _mm256_permutevar8x32_epi32(masks, halves[half]));
      store(tile.least + i + 8 * half, _mm256_permutevar8x32_epi32(least, halves[half]));
    }
  }
}

// Takes the gaps of `count` masks out of the stream, as many as a word has together; returns the position
// behind them. `kIsSplit`: they may be more than the 57 bits that a load has for sure.
template <bool kIsSplit, class Number>
[[gnu::always_inline]] inline std::uint64_t take(const std::byte* from, std::uint64_t position,
                                                 std::uint32_t count, Gaps<Number>& tile) noexcept {
#pragma GCC unroll 4
  for (std::uint32_t i = 0; i < count; i += Gaps<Number>::kInWord) {
    std::uint64_t mask;
    std::memcpy(&mask, tile.masks + i, sizeof mask);
    const std::byte* const at = from + position / 8;
    std::uint64_t word = load_le<std::uint64_t>(at) >> position % 8;
    if constexpr (kIsSplit) word |= std::uint64_t{load_le<std::uint8_t>(at + 8)} << 1 << (63 - position % 8);
    const std::uint64_t gaps = _pdep_u64(word, mask);
    std::memcpy(tile.gaps + i, &gaps, sizeof gaps);
    position += popcount(mask);
  }
  return position;
}

// What is wrong with flags, or not, and what the gaps have in common.
struct Findings {
  __m256i wrong = _mm256_setzero_si256();
  __m256i all = _mm256_setzero_si256();

  void look_at(const std::uint8_t* gaps, const std::uint8_t* least) noexcept {
    const __m128i gap = _mm_load_si128(reinterpret_cast<const __m128i*>(gaps));
    const __m128i needed = _mm_load_si128(reinterpret_cast<const __m128i*>(least));
    all = _mm256_or_si256(all, _mm256_zextsi128_si256(gap));
    wrong = _mm256_or_si256(wrong, _mm256_zextsi128_si256(_mm_subs_epu8(needed, gap)));
  }
  void look_at(const std::uint16_t* gaps, const std::uint16_t* least) noexcept {
    all = _mm256_or_si256(all, load(gaps));
    wrong = _mm256_or_si256(wrong, _mm256_subs_epu16(load(least), load(gaps)));
  }
  void look_at(const std::uint32_t* gaps, const std::uint32_t* least) noexcept {
    for (unsigned half = 0; half < 2; ++half) {  // as signed numbers: they have 23 bits
      all = _mm256_or_si256(all, load(gaps + 8 * half));
      wrong = _mm256_or_si256(wrong, _mm256_cmpgt_epi32(load(least + 8 * half), load(gaps + 8 * half)));
    }
  }
  template <class Number>
  void tell(GapStream& stream) const noexcept {
    stream.has_wrong_flag |= _mm256_testz_si256(wrong, wrong) == 0;
    alignas(32) Number lanes[32 / sizeof(Number)];
    store(lanes, all);
    for (const Number each : lanes) stream.all_gaps |= each;
  }
};

__m256i eight_of(const std::uint8_t* gaps) noexcept {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(gaps)));
}

__m256i eight_of(const std::uint16_t* gaps) noexcept {
  return _mm256_cvtepu16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(gaps)));
}

__m256i eight_of(const std::uint32_t* gaps) noexcept {
  return load(gaps);
}

// Keys of gaps.
template <class Number>
void add_up(const Number* gaps, std::uint32_t count, std::uint32_t key, std::uint32_t* keys) noexcept {
  __m256i before = all_of(key);
  for (std::uint32_t i = 0; i < count; i += 8) {
    __m256i sums = _mm256_add_epi32(eight_of(gaps + i), all_of(1));
    sums = _mm256_add_epi32(sums, _mm256_slli_si256(sums, 4));
    sums = _mm256_add_epi32(sums, _mm256_slli_si256(sums, 8));
    const __m256i low_half = _mm256_permutevar8x32_epi32(sums, _mm256_setr_epi32(0, 0, 0, 0, 3, 3, 3, 3));
    sums = _mm256_add_epi32(sums, _mm256_blend_epi32(low_half, _mm256_setzero_si256(), 0x0F));
    store(keys + i, _mm256_add_epi32(sums, before));
    // The sum alone waits for the eight before.
    before = _mm256_add_epi32(before, _mm256_permutevar8x32_epi32(sums, all_of(7)));
  }
}

template <unsigned kFlagBits, class Number>
void read(KeyRun& run) noexcept {
  constexpr std::uint64_t kMostFlagBytes = std::uint64_t{kTile} * kFlagBits / 8 + kFlagsBytes;
  constexpr std::uint64_t kMostGapBytes = kTile * sizeof(Number) + 16;
  GapStream& stream = *run.gaps;
  BitWindow& flags = stream.streams.flags;
  BitWindow& window = stream.streams.gaps;
  const std::byte* const end = window.at + window.bytes;
  Readable<kMostFlagBytes> readable_flags;
  Readable<kMostGapBytes> readable_gaps;
  Gaps<Number> tile;
  const std::byte* from = readable_flags.of(flags.at + flags.position / 8, end,
                                            std::uint64_t{run.count} * kFlagBits / 8 + kFlagsBytes);
  look_up<kFlagBits>(stream, from, run.count, tile);
  // Behind the last flag, nothing is taken and nothing is wrong.
  std::memset(tile.masks + run.count, 0, kLanes * sizeof(Number));
  const std::uint32_t whole = (run.count + kLanes - 1) / kLanes * kLanes;
  for (std::uint32_t i = run.count; i < whole; ++i) tile.least[i] = 0;

  const std::uint64_t first = window.position / 8;
  from = readable_gaps.of(window.at + (first < window.bytes ? first : window.bytes), end,
                          std::uint64_t{run.count} * stream.key_bits / 8 + kPeekBytes + 1);
  std::uint64_t position = window.position % 8;
  const bool is_split = Gaps<Number>::kInWord * stream.key_bits > 57;
  if (is_split) {
    position = take<true>(from, position, whole, tile);
  } else if (whole == kTile) {
    position = take<false>(from, position, kTile, tile);  // a number that is known: the loop is unrolled
  } else {
    position = take<false>(from, position, whole, tile);
  }

  Findings findings;
  for (std::uint32_t i = 0; i < run.count; i += kLanes) findings.look_at(tile.gaps + i, tile.least + i);
  findings.tell<Number>(stream);
  const auto key = static_cast<std::uint32_t>(run.key);
  add_up(tile.gaps, run.count, key, run.keys);
  flags.position += std::uint64_t{run.count} * kFlagBits;
  window.position = first * 8 + position;
  if (run.count > 0) run.key += run.keys[run.count - 1] - key;
}

template <unsigned kFlagBits>
void read_for(KeyRun& run) noexcept {
  if (run.gaps->key_bits <= 8) return read<kFlagBits, std::uint8_t>(run);
  if (run.gaps->key_bits <= 16) return read<kFlagBits, std::uint16_t>(run);
  read<kFlagBits, std::uint32_t>(run);
}

}  // namespace

void open_gaps(GapStream& gaps, unsigned key_bits, unsigned flag_bits) {
  fill_gaps(gaps, key_bits, flag_bits);
}

void read_keys(KeyRun& run) {
  if (run.gaps->key_bits == 0) return follow_on(run);
  for_flag_bits(run.gaps->flag_bits, [&]<unsigned kFlagBits>() { read_for<kFlagBits>(run); });
}

Decoded decode_row(const ChunkRow& row, const DecodeRules& rules, DecodeTarget& target) {
  return decode_in_tiles(row, rules, target);
}

Fault place_values(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target) {
  return place_in_tiles(chunk, rules, target);
}

// Values by a look into their table each.

// The numbers of a tile, with room for a whole vector behind the last.
struct Numbers {
  static constexpr std::uint32_t kLanes = 16;
  static constexpr std::uint32_t kTogether = 8;
  static constexpr std::uint64_t kPeekBytes = 16;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{kTile} * (kMaxCodeBits + 1) / 8;

  alignas(32) std::uint16_t at[kTile + kLanes];

  // Eight numbers of a width are as many bytes.
  [[gnu::always_inline]] void read(const BitWindow& stream, unsigned bits, std::uint32_t count) noexcept {
    std::byte copy[kMostBytes + kPeekBytes];
    const std::uint64_t first = stream.position / 8;
    const std::uint64_t bytes = std::uint64_t{(count + kTogether - 1) / kTogether} * bits + kPeekBytes;
    const std::byte* from = stream.at + first;
    if (first + bytes > stream.bytes) {
      std::memset(copy, 0, bytes);
      if (first < stream.bytes)
        std::memcpy(copy, from, stream.bytes - first < bytes ? stream.bytes - first : bytes);
      from = copy;
    }
    bits <= 8 ? read_narrow(from, bits, count) : read_wide(from, bits, count);
  }

  // The smallest and the largest code. Reads a whole vector.
  [[gnu::always_inline]] void find_extent(std::uint32_t count, ValueStream& values) const noexcept {
    const __m256i codes = _mm256_set1_epi16(static_cast<short>((1U << values.code_bits) - 1));
    __m256i lowest = codes;
    __m256i highest = _mm256_setzero_si256();
    for (std::uint32_t i = 0; i < count; i += kLanes) {
      const __m256i number = _mm256_load_si256(reinterpret_cast<const __m256i*>(at + i));
      const __m256i code = _mm256_and_si256(number, codes);
      lowest = _mm256_min_epu16(lowest, code);
      highest = _mm256_max_epu16(highest, code);
    }
    alignas(32) std::uint16_t lanes[2][kLanes];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes[0]), lowest);
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes[1]), highest);
    for (std::uint32_t i = 0; i < kLanes; ++i) {
      values.lowest = lanes[0][i] < values.lowest ? lanes[0][i] : values.lowest;
      values.highest = lanes[1][i] > values.highest ? lanes[1][i] : values.highest;
    }
  }

 private:
  [[gnu::always_inline]] void read_narrow(const std::byte* from, unsigned bits,
                                          std::uint32_t count) noexcept {
    const std::uint64_t mask = std::uint64_t{0x0101010101010101} * ((1U << bits) - 1);
    for (std::uint32_t i = 0; i < count; i += kTogether, from += bits) {
      const std::uint64_t bytes = _pdep_u64(load_le<std::uint64_t>(from), mask);
      _mm_store_si128(reinterpret_cast<__m128i*>(at + i),
                      _mm_cvtepu8_epi16(_mm_cvtsi64_si128(static_cast<long long>(bytes))));
    }
  }

  [[gnu::always_inline]] void read_wide(const std::byte* from, unsigned bits, std::uint32_t count) noexcept {
    const std::uint64_t mask = std::uint64_t{0x0001000100010001} * ((1U << bits) - 1);
    const unsigned half = 4 * bits;
    for (std::uint32_t i = 0; i < count; i += kTogether, from += bits) {
      const std::uint64_t words[2] = {_pdep_u64(load_le<std::uint64_t>(from), mask),
                                      _pdep_u64(load_le<std::uint64_t>(from + half / 8) >> half % 8, mask)};
      std::memcpy(at + i, words, sizeof words);
    }
  }
};

// Looks up one by one: that takes less time than vectors that gather.
[[gnu::always_inline]] inline void read_one_by_one(ValueStream& values, std::uint32_t count,
                                                   float* out) noexcept {
  const unsigned bits = values.code_bits + 1;
  Numbers numbers;
  numbers.read(values.stream, bits, count);
  // Behind the last number its like, which changes no extent.
  for (std::uint32_t i = 0; i < Numbers::kLanes; ++i) numbers.at[count + i] = numbers.at[count - 1];
  numbers.find_extent(count, values);
  put_values(*values.tables, numbers.at, count, out);
  values.stream.position += std::uint64_t{count} * bits;
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
