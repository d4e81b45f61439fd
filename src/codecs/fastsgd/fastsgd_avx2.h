// A chunk's streams for AVX2: reading keys and values, and writing them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/fastsgd/fastsgd_vectors_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Keys are read in three steps: flags become masks; masks say where each gap lies, so that no gap waits for
// the one before it; and gaps are added up.
namespace {

constexpr std::uint32_t kGaps = 16;        // handled together, with their flags
constexpr std::uint64_t kFlagsBytes = 16;  // read at a time
constexpr std::uint64_t kPeekBytes = 9;    // read for a gap

// Where 16 flags lie in their bytes; each lies within two.
struct FlagPlaces {
  alignas(32) std::uint8_t bytes[32] = {};
  alignas(32) std::uint16_t factors[16] = {};  // bring the flag to the top of the 16 bits

  constexpr explicit FlagPlaces(unsigned flag_bits) noexcept {
    for (unsigned i = 0; i < kGaps; ++i) {
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

  alignas(64) Number masks[kTile + kGaps];
  alignas(64) Number least[kTile];
  alignas(64) Number gaps[kTile + kGaps];
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
  for (std::uint32_t i = 0; i < count; i += kGaps) {
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
  for (std::uint32_t i = 0; i < count; i += kGaps) {
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
  for (std::uint32_t i = 0; i < count; i += kGaps) {
    const __m256i flag = flags_of<kFlagBits>(flags + i * kFlagBits / 8);
    const __m256i halves[2] = {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(flag)),
                               _mm256_cvtepu16_epi32(_mm256_extracti128_si256(flag, 1))};
    for (unsigned half = 0; half < 2; ++half) {
      store(tile.masks + i + 8 * half, _mm256_permutevar8x32_epi32(masks, halves[half]));
      store(tile.least + i + 8 * half, _mm256_permutevar8x32_epi32(least, halves[half]));
    }
  }
}

// Reads the gaps of `count` masks, a word of them at a time; returns the position behind them. `kIsSplit`: a
// word of them may exceed the 57 bits that one load is sure to hold.
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

// Whether any flag is wrong, and the union of the gaps' bits.
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
  // Behind the last flag nothing is read, and nothing is wrong.
  std::memset(tile.masks + run.count, 0, kGaps * sizeof(Number));
  const std::uint32_t whole = (run.count + kGaps - 1) / kGaps * kGaps;
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
  for (std::uint32_t i = 0; i < run.count; i += kGaps) findings.look_at(tile.gaps + i, tile.least + i);
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
  const GapLengths of(key_bits, flag_bits);
  gaps.flag_bits = flag_bits;
  gaps.key_bits = key_bits;
  for (unsigned flag = 0; flag < 1U << flag_bits; ++flag) {
    gaps.masks[flag] = (1U << of.of_flag[flag]) - 1;
    gaps.least[flag] = static_cast<std::uint32_t>(of.least[flag]);
  }
}

void read_keys(KeyRun& run) {
  if (run.gaps->key_bits == 0) return follow_on(run);
  for_flag_bits(run.gaps->flag_bits, [&]<unsigned kFlagBits>() { read_for<kFlagBits>(run); });
}

// Reading values, which are looked up one by one.

// Values of the codes from the chunk's base on, as far as they are allowed, and behind them the same with the
// other sign: a number is a code below its sign.
void open_values(ValueStream& values, const DecodeRules& rules, const Head& head, float scale) {
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

// Looks values up one by one, which takes less time than gather instructions.
void read_values(ValueStream& values, std::uint32_t count, float* out) {
  const unsigned bits = values.code_bits + 1;
  Numbers numbers;
  numbers.read(values.stream, bits, count);
  // The rest of the vector repeats the last number, so that the range of codes stays the same.
  for (std::uint32_t i = 0; i < Numbers::kLanes; ++i) numbers.at[count + i] = numbers.at[count - 1];
  numbers.find_extent(count, values);
  put_values(*values.tables, numbers.at, count, out);
  values.stream.position += std::uint64_t{count} * bits;
}

// Writing. Eight values of n bits fill n bytes, so that no value waits for where the one before ended. Flags
// and masks are made for sixteen gaps at a time; one instruction packs the bits of a word of gaps.
namespace {

constexpr std::uint32_t kValues = 8;  // written together

// Eight numbers of code_bits + 1 bits each, still in 16 bits.
__m128i numbers_of(const ChunkPairs& chunk, std::uint32_t at, unsigned code_bits) noexcept {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(chunk.codes + at));
  const __m128i magnitudes = _mm_and_si128(codes, _mm_set1_epi16(0x7FFF));
  const __m128i offsets = _mm_sub_epi16(magnitudes, _mm_set1_epi16(static_cast<short>(chunk.range.lowest)));
  const __m128i signs =
      _mm_sll_epi16(_mm_srli_epi16(codes, 15), _mm_cvtsi32_si128(static_cast<int>(code_bits)));
  return _mm_or_si128(offsets, signs);
}

std::uint64_t low_half(__m128i bits) noexcept {
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(bits));
}

std::uint64_t high_half(__m128i bits) noexcept {
  return static_cast<std::uint64_t>(_mm_extract_epi64(bits, 1));
}

// Sixteen numbers of code_bits + 1 bits each, still in 16 bits.
__m256i sixteen_numbers(const ChunkPairs& chunk, std::uint32_t at, unsigned code_bits) noexcept {
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(chunk.codes + at));
  const __m256i magnitudes = _mm256_and_si256(codes, _mm256_set1_epi16(0x7FFF));
  const __m256i lowest = _mm256_set1_epi16(static_cast<short>(chunk.range.lowest));
  const __m128i to_place = _mm_cvtsi32_si128(static_cast<int>(15 - code_bits));
  const __m256i signs = _mm256_srl_epi16(_mm256_andnot_si256(_mm256_set1_epi16(0x7FFF), codes), to_place);
  return _mm256_or_si256(_mm256_sub_epi16(magnitudes, lowest), signs);
}

// Numbers of up to 8 bits, as bytes. Reads whole vectors of codes.
std::byte* write_narrow(const ChunkPairs& chunk, unsigned code_bits, std::uint32_t end,
                        std::byte* out) noexcept {
  constexpr std::uint32_t kTogether = 32;
  const std::uint64_t mask = std::uint64_t{0x0101010101010101} * ((1U << (code_bits + 1)) - 1);
  std::uint32_t i = 0;
  for (; i + kTogether <= end; i += kTogether) {
    const __m256i packed = _mm256_packus_epi16(sixteen_numbers(chunk, i, code_bits),
                                               sixteen_numbers(chunk, i + kTogether / 2, code_bits));
    alignas(32) std::uint64_t words[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(words), _mm256_permute4x64_epi64(packed, 0xD8));
    for (const std::uint64_t word : words) {
      store_le(out, static_cast<std::uint64_t>(_pext_u64(word, mask)));
      out += code_bits + 1;
    }
  }
  for (; i < end; i += kValues) {
    const __m128i numbers = numbers_of(chunk, i, code_bits);
    store_le(out, static_cast<std::uint64_t>(_pext_u64(low_half(_mm_packus_epi16(numbers, numbers)), mask)));
    out += code_bits + 1;
  }
  return out;
}

// Numbers of 9 to 12 bits: four at a time, whose end may lie inside a byte.
std::byte* write_wide(const ChunkPairs& chunk, unsigned code_bits, std::uint32_t end,
                      std::byte* out) noexcept {
  const std::uint64_t mask = std::uint64_t{0x0001000100010001} * ((1U << (code_bits + 1)) - 1);
  const unsigned half = 4 * (code_bits + 1);
  for (std::uint32_t i = 0; i < end; i += kValues) {
    const __m128i numbers = numbers_of(chunk, i, code_bits);
    const std::uint64_t low = _pext_u64(low_half(numbers), mask);
    const std::uint64_t high = _pext_u64(high_half(numbers), mask);
    store_le(out, low);
    store_le(out + half / 8, low >> half / 8 * 8 | high << half % 8);
    out += code_bits + 1;
  }
  return out;
}

// The gaps of a tile, with the masks of their flags, in numbers of 8, 16 or 32 bits.
template <class Number>
struct MaskedGaps {
  static constexpr std::uint32_t kInWord = 8 / sizeof(Number);

  alignas(64) Number gaps[kTile];
  alignas(64) Number masks[kTile];
};

void store_aligned(void* at, __m256i bits) noexcept {
  _mm256_store_si256(static_cast<__m256i*>(at), bits);
}

// Eight gaps of keys that follow on each other.
__m256i gaps_behind(const std::uint32_t* keys) noexcept {
  const __m256i distances = _mm256_sub_epi32(load(keys + 1), load(keys));
  return _mm256_sub_epi32(distances, _mm256_set1_epi32(1));
}

// Sixteen gaps, in 16 bits each.
__m256i short_gaps(const std::uint32_t* keys) noexcept {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(gaps_behind(keys), gaps_behind(keys + 8)), 0xD8);
}

// Flags and masks of gaps. `least`: the smallest gap that needs a flag or one above it; for a flag that no
// gap needs, larger than any gap.
template <unsigned kFlagBits>
struct FlagFinder {
  static constexpr unsigned kHigher = (1U << kFlagBits) - 1;

  __m256i least[kHigher];  // in 32 bits
  __m256i masks;           // by flag
  __m128i bytes_of_masks;  // their low bytes, and behind them the next

  explicit FlagFinder(const GapLengths& of) noexcept {
    alignas(32) std::uint32_t of_flags[8] = {};
    alignas(16) std::uint8_t bytes[16] = {};
    for (unsigned flag = 0; flag <= kHigher; ++flag) {
      of_flags[flag] = (1U << of.of_flag[flag]) - 1;
      bytes[flag] = static_cast<std::uint8_t>(of_flags[flag]);
      bytes[8 + flag] = static_cast<std::uint8_t>(of_flags[flag] >> 8);
    }
    for (unsigned flag = 0; flag < kHigher; ++flag) {
      least[flag] = _mm256_set1_epi32(static_cast<int>(of.least[flag + 1]));
    }
    masks = load(of_flags);
    bytes_of_masks = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes));
  }

  // Sixteen gaps and their masks; returns their flags in bytes.
  __m128i look_at(const std::uint32_t* keys, std::uint8_t* gaps, std::uint8_t* masks_of) const noexcept {
    const __m128i gap = joined(short_gaps(keys));
    __m128i flag = _mm_setzero_si128();
    for (const __m256i& each : least) {
      const __m128i at_least = _mm256_castsi256_si128(_mm256_shuffle_epi8(each, _mm256_setzero_si256()));
      flag = _mm_sub_epi8(flag, _mm_cmpeq_epi8(_mm_max_epu8(gap, at_least), gap));
    }
    _mm_store_si128(reinterpret_cast<__m128i*>(gaps), gap);
    _mm_store_si128(reinterpret_cast<__m128i*>(masks_of), _mm_shuffle_epi8(bytes_of_masks, flag));
    return flag;
  }

  __m128i look_at(const std::uint32_t* keys, std::uint16_t* gaps, std::uint16_t* masks_of) const noexcept {
    const __m256i gap = short_gaps(keys);
    __m256i flag = _mm256_setzero_si256();
    for (const __m256i& each : least) {
      const __m256i at_least = _mm256_packus_epi32(each, each);
      flag = _mm256_sub_epi16(flag, _mm256_cmpeq_epi16(_mm256_max_epu16(gap, at_least), gap));
    }
    const __m256i places =
        _mm256_add_epi16(_mm256_mullo_epi16(flag, _mm256_set1_epi16(0x0101)), _mm256_set1_epi16(0x0800));
    store_aligned(gaps, gap);
    store_aligned(masks_of, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes_of_masks), places));
    return joined(flag);
  }

  __m128i look_at(const std::uint32_t* keys, std::uint32_t* gaps, std::uint32_t* masks_of) const noexcept {
    __m256i flags[2] = {};
    for (unsigned half = 0; half < 2; ++half) {
      const __m256i gap = gaps_behind(keys + 8 * half);
      for (const __m256i& each : least) {
        flags[half] = _mm256_sub_epi32(flags[half], _mm256_cmpeq_epi32(_mm256_max_epu32(gap, each), gap));
      }
      store_aligned(gaps + 8 * half, gap);
      store_aligned(masks_of + 8 * half, _mm256_permutevar8x32_epi32(masks, flags[half]));
    }
    return joined(_mm256_permute4x64_epi64(_mm256_packus_epi32(flags[0], flags[1]), 0xD8));
  }
};

// Sixteen flags, in 16 * kFlagBits bits.
template <unsigned kFlagBits>
std::uint64_t packed_flags(__m128i flags) noexcept {
  constexpr std::uint64_t kMask = std::uint64_t{0x0101010101010101} * ((1U << kFlagBits) - 1);
  return _pext_u64(low_half(flags), kMask) | _pext_u64(high_half(flags), kMask) << 8 * kFlagBits;
}

template <bool kIsShort, class Number>
[[gnu::always_inline]] inline void append(const MaskedGaps<Number>& tile, std::uint32_t count,
                                          WordAppender& out) noexcept {
#pragma GCC unroll 4
  for (std::uint32_t i = 0; i < count; i += MaskedGaps<Number>::kInWord) {
    std::uint64_t gaps;
    std::uint64_t mask;
    std::memcpy(&gaps, tile.gaps + i, sizeof gaps);
    std::memcpy(&mask, tile.masks + i, sizeof mask);
    out.put<kIsShort>(_pext_u64(gaps, mask), popcount(mask));
  }
}

// The last gaps, fewer than 16: their keys are copied to where vectors can be read.
template <unsigned kFlagBits, class Number>
void look_at_rest(const FlagFinder<kFlagBits>& finder, const std::uint32_t* keys, std::uint32_t count,
                  MaskedGaps<Number>& tile, std::uint32_t at, std::byte* flags) noexcept {
  std::uint32_t copy[kGaps + 1] = {};
  std::memcpy(copy, keys, (count + 1) * sizeof *keys);
  // MaskedGaps of 0 behind the last: their flags are the zero bits that fill the last byte.
  for (std::uint32_t i = count + 1; i <= kGaps; ++i) copy[i] = copy[i - 1] + 1;
  const std::uint64_t packed = packed_flags<kFlagBits>(finder.look_at(copy, tile.gaps + at, tile.masks + at));
  for (std::uint32_t i = count; i < kGaps; ++i) tile.masks[at + i] = 0;
  for (std::uint32_t i = 0; i < (count * kFlagBits + 7) / 8; ++i) {
    flags[i] = static_cast<std::byte>(packed >> 8 * i);
  }
}

template <unsigned kFlagBits, bool kIsShort, class Number>
std::byte* write(const ChunkPairs& chunk, unsigned key_bits, std::byte* flags) noexcept {
  const FlagFinder<kFlagBits> finder(GapLengths(key_bits, kFlagBits));
  const std::uint32_t count = chunk.pairs - 1;
  WordAppender out(flags + (count * kFlagBits + 7) / 8);
  MaskedGaps<Number> tile;
  for (std::uint32_t first = 0; first < count; first += kTile) {
    const std::uint32_t left = count - first;
    const std::uint32_t taken = left < kTile ? left : kTile;
    const std::uint32_t* const keys = chunk.keys + first;
    std::uint32_t i = 0;
    for (; i + kGaps <= taken; i += kGaps) {
      const __m128i flag = finder.look_at(keys + i, tile.gaps + i, tile.masks + i);
      const std::uint64_t packed = packed_flags<kFlagBits>(flag);
      std::memcpy(flags, &packed, std::uint64_t{2} * kFlagBits);
      flags += std::uint64_t{2} * kFlagBits;
    }
    if (i < taken) look_at_rest(finder, keys + i, taken - i, tile, i, flags);
    if (taken == kTile) {
      append<kIsShort>(tile, kTile, out);  // a number that is known: the loop is unrolled
    } else {
      append<kIsShort>(tile, taken, out);
    }
  }
  return out.finish();
}

template <unsigned kFlagBits>
std::byte* write_for(const ChunkPairs& chunk, unsigned key_bits, std::byte* out) noexcept {
  if (key_bits <= 7) return write<kFlagBits, true, std::uint8_t>(chunk, key_bits, out);
  if (key_bits == 8) return write<kFlagBits, false, std::uint8_t>(chunk, key_bits, out);
  if (key_bits <= 14) return write<kFlagBits, true, std::uint16_t>(chunk, key_bits, out);
  if (key_bits <= 16) return write<kFlagBits, false, std::uint16_t>(chunk, key_bits, out);
  return write<kFlagBits, false, std::uint32_t>(chunk, key_bits, out);
}

}  // namespace

std::byte* write_values(const ChunkPairs& chunk, unsigned code_bits, std::byte* out) {
  const std::uint32_t end = chunk.pairs / kValues * kValues;
  out = code_bits < 8 ? write_narrow(chunk, code_bits, end, out) : write_wide(chunk, code_bits, end, out);
  return reference::write_values(rest_of(chunk, end), code_bits, out);
}

std::byte* write_gaps(const ChunkPairs& chunk, unsigned key_bits, unsigned flag_bits, std::byte* out) {
  if (flag_bits > kVectorFlagBits || key_bits > kMostKeyBits) {
    return reference::write_gaps(chunk, key_bits, flag_bits, out);
  }
  return for_flag_bits(flag_bits,
                       [&]<unsigned kFlagBits>() { return write_for<kFlagBits>(chunk, key_bits, out); });
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
