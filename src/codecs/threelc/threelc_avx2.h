// What AVX-512 shares with AVX2: Rice codes, with the bit instructions of BMI2, and blocks of 32 bytes. One
// file of each target includes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/kernels/rice.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_rice_ops.h"
#include "codecs/threelc/threelc_vectors_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

struct Block32 {
  static constexpr std::uint32_t kBytes = 32;

  static Block32 load(const std::byte* from) noexcept {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
  }
  static Block32 all(std::byte byte) noexcept { return {_mm256_set1_epi8(static_cast<char>(byte))}; }

  void store(std::byte* to) const noexcept { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes); }
  std::uint64_t equal(std::byte byte) const noexcept {
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, all(byte).bytes)));
  }
  std::uint64_t at_least(std::byte byte) const noexcept {
    const Block32 larger = {_mm256_max_epu8(bytes, all(byte).bytes)};
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(larger.bytes, bytes)));
  }

  __m256i bytes;
};

// Writing Rice codes.

MapWord load_word(const DigitMaps& maps, std::uint32_t at) noexcept {
  return {load_le<std::uint64_t>(maps.nonzero + at / 8), load_le<std::uint64_t>(maps.negative + at / 8)};
}

[[gnu::always_inline]] inline void put_gap(BitWriter& bits, std::uint32_t gap, std::uint64_t negative,
                                           unsigned parameter) noexcept {
  const std::uint32_t unary = gap >> parameter;
  if (unary >= kMaxUnary) {
    const RiceBits code = rice_bits_of(gap, parameter, kRiceEscapeBits);
    bits.put(code.value | negative << code.bits, code.bits + 1);
    return;
  }
  const std::uint64_t low = _bzhi_u32(gap, parameter) | negative << parameter;
  bits.put(low << (unary + 1) | ((std::uint64_t{1} << unary) - 1), unary + parameter + 2);
}

[[gnu::always_inline]] inline void put_place(BitWriter& bits, const std::uint32_t* place,
                                             unsigned parameter) noexcept {
  put_gap(bits, (place[0] >> 1) - (place[-1] >> 1) - 1, place[0] & 1, parameter);
}

constexpr unsigned kMostPut = 56;  // bits, in a BitWriter at once

// Puts two codes, together if they fit. REQUIRES: each has at most kMostPut bits.
[[gnu::always_inline]] inline void put_two(BitWriter& bits, const std::uint64_t* values,
                                           const std::uint64_t* lengths) noexcept {
  const std::uint64_t both = lengths[0] + lengths[1];
  if (both <= kMostPut) [[likely]] {
    bits.put(values[0] | values[1] << lengths[0], static_cast<unsigned>(both));
    return;
  }
  bits.put(values[0], static_cast<unsigned>(lengths[0]));
  bits.put(values[1], static_cast<unsigned>(lengths[1]));
}

// The codes of eight places, two in each 64-bit lane, then four in a word. False, and nothing put, if they
// don't fit. REQUIRES: parameter <= kMostOfEight.
constexpr unsigned kMostOfEight = 7;  // so that a code that is no escape has at most 32 bits

[[gnu::always_inline]] inline bool put_eight(BitWriter& bits, const std::uint32_t* places,
                                             unsigned parameter) noexcept {
  const __m256i one = _mm256_set1_epi32(1);
  const __m256i lower = _mm256_set1_epi64x(0xFFFFFFFF);
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(parameter));
  const __m256i here = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(places));
  const __m256i before = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(places - 1));
  const __m256i step = _mm256_sub_epi32(_mm256_srli_epi32(here, 1), _mm256_srli_epi32(before, 1));
  const __m256i gap = _mm256_sub_epi32(step, one);
  const __m256i unary = _mm256_srl_epi32(gap, shift);
  const __m256i low = _mm256_sub_epi32(gap, _mm256_sll_epi32(unary, shift));
  const __m256i signed_low = _mm256_add_epi32(low, _mm256_sll_epi32(_mm256_and_si256(here, one), shift));
  const __m256i ones = _mm256_sub_epi32(_mm256_sllv_epi32(one, unary), one);
  const __m256i code =
      _mm256_or_si256(_mm256_sllv_epi32(_mm256_add_epi32(signed_low, signed_low), unary), ones);
  const __m256i length = _mm256_add_epi32(unary, _mm256_set1_epi32(static_cast<int>(parameter + 2)));
  const __m256i first_length = _mm256_and_si256(length, lower);
  const __m256i pair = _mm256_or_si256(_mm256_and_si256(code, lower),
                                       _mm256_sllv_epi64(_mm256_srli_epi64(code, 32), first_length));
  const __m256i pair_length = _mm256_add_epi64(first_length, _mm256_srli_epi64(length, 32));
  const __m256i too_long = _mm256_or_si256(_mm256_cmpgt_epi32(unary, _mm256_set1_epi32(kMaxUnary - 1)),
                                           _mm256_cmpgt_epi32(pair_length, _mm256_set1_epi64x(kMostPut)));
  if (_mm256_testz_si256(too_long, too_long) == 0) return false;
  alignas(32) std::uint64_t values[4];
  alignas(32) std::uint64_t lengths[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(values), pair);
  _mm256_store_si256(reinterpret_cast<__m256i*>(lengths), pair_length);
  put_two(bits, values, lengths);
  put_two(bits, values + 2, lengths + 2);
  return true;
}

constexpr unsigned kLeastOfFew = 4;  // parameter for fewer than four digits in a word of 64

// Passes `bits` by value, which keeps them in registers.
BitWriter put_gaps(BitWriter bits, const DigitMaps& maps, std::uint32_t count, unsigned parameter) noexcept {
  Places places;
  places.at[0] = 0;
  for (std::uint32_t begin = 0; begin < count && !bits.overflowed(); begin += kPlacesBlock) {
    const std::uint32_t left = count - begin;
    const std::uint32_t block_end = begin + (left < kPlacesBlock ? left : kPlacesBlock);
    if (parameter >= kLeastOfFew) {
      find_few_places(maps, begin, block_end, places);
    } else {
      find_places(maps, begin, block_end, places);
    }
    const std::uint32_t* place = places.at + 1;
    const std::uint32_t* const end = place + places.count;
    for (; parameter <= kMostOfEight && end - place >= 8; place += 8) {
      if (put_eight(bits, place, parameter)) continue;
      for (unsigned i = 0; i < 8; ++i) put_place(bits, place + i, parameter);
    }
    for (; place < end; ++place) put_place(bits, place, parameter);
    places.at[0] = end[-1];
  }
  return bits;
}

// Elements up to the last one that isn't 0.
std::uint32_t used_elements(const DigitMaps& maps, std::uint32_t count) noexcept {
  for (std::uint32_t words = map_bytes(count) / 8; words > 0; --words) {
    const std::uint64_t word = load_word(maps, (words - 1) * 64).nonzero;
    if (word != 0) return (words - 1) * 64 + bit_width(word);
  }
  return 0;
}

// Appends up to 64 bits at once, without a branch: where words end is as good as random.
class WordStore {
 public:
  [[gnu::always_inline]] WordStore(std::byte* out, std::uint32_t bytes) noexcept : out_(out), bytes_(bytes) {}

  // REQUIRES: 0 < bits <= 64, and no bits beyond them in `value`.
  [[gnu::always_inline]] void put(std::uint64_t value, unsigned bits) noexcept {
    pending_ |= value << filled_;
    store();
    const unsigned rest = 63 - filled_;
    filled_ += bits;
    const std::uint64_t full = filled_ / 64;  // 0 or 1
    const std::uint64_t kept = full - 1;      // all bits or none
    pending_ = (pending_ & kept) | (value >> 1 >> rest & ~kept);
    at_ += static_cast<std::uint32_t>(full) * 8;
    filled_ %= 64;
  }

  // Whether there are more bytes than room: `put` does nothing then.
  [[gnu::always_inline]] bool full() const noexcept { return at_ > bytes_; }

  // The bytes put, the last one filled with zeros; more than there is room for if they didn't fit.
  [[gnu::always_inline]] std::uint32_t finish() const noexcept {
    store();
    return at_ + (filled_ + 7) / 8;
  }

 private:
  [[gnu::always_inline]] void store() const noexcept {
    if (at_ + 8 <= bytes_) [[likely]]
      return store_le(out_ + at_, pending_);
    for (std::uint32_t i = 0; at_ + i < bytes_; ++i) {
      out_[at_ + i] = static_cast<std::byte>(pending_ >> (i * 8) & 0xFF);
    }
  }

  std::byte* out_;
  std::uint32_t bytes_;
  std::uint32_t at_ = 0;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;  // < 64 between calls
};

constexpr std::uint64_t kEven = 0x5555555555555555;

// Parameter 0: a digit 0 is coded as a 1, any other as a 0 and its sign. So 32 digits at once are spread to
// two bits each, and the second bits of zeros are left out.
class DigitCoder {
 public:
  // `digits`: of the word's, those to be put.
  [[gnu::always_inline]] void put(const MapWord& word, unsigned digits, WordStore& store) const noexcept {
    put_half(word, digits < 32 ? digits : 32, store);
    if (digits > 32) put_half({word.nonzero >> 32, word.negative >> 32}, digits - 32, store);
  }

 private:
  [[gnu::always_inline]] static void put_half(const MapWord& word, unsigned digits,
                                              WordStore& store) noexcept {
    const std::uint64_t first = _pdep_u64(word.nonzero, kEven);
    const std::uint64_t wanted = _bzhi_u64(kEven | first << 1, 2 * digits);
    store.put(_pext_u64((kEven & ~first) | _pdep_u64(word.negative, ~kEven), wanted), popcount(wanted));
  }
};

// Parameter 1: a 1 for each two zeros of a run; for each other digit a 0, whether a zero without a partner is
// before it, and the sign. Zeros that have no code of their own, the first of each two and those without a
// partner, are left out; the other digits are spread to three bits each.
class PairCoder {
 public:
  [[gnu::always_inline]] void put(const MapWord& word, unsigned digits, WordStore& store) noexcept {
    const std::uint64_t zeros = ~word.nonzero;
    // Runs that begin at even places: adding their first bits clears them, and no others.
    const std::uint64_t begin = zeros & ~(zeros << 1 | single_);
    const std::uint64_t odd_runs = zeros & (zeros + (begin & kEven));
    const std::uint64_t seconds = (zeros & ~odd_runs & ~kEven) | (odd_runs & kEven);
    const std::uint64_t firsts = zeros & ~seconds;
    const std::uint64_t after_single = word.nonzero & (firsts << 1 | single_);
    single_ = firsts >> 63;
    const std::uint64_t kept = _bzhi_u64(seconds | word.nonzero, digits);
    unsigned left = popcount(kept);
    std::uint64_t nonzero = _pext_u64(word.nonzero, kept);
    std::uint64_t low = _pext_u64(after_single, kept);
    std::uint64_t negative = _pext_u64(word.negative, kept);
    while (left > 0) {
      const unsigned now = left < kAtOnce ? left : kAtOnce;
      const std::uint64_t first = _pdep_u64(nonzero, kThirds);
      const std::uint64_t each = _bzhi_u64(kThirds, 3 * now);
      const std::uint64_t wanted = each | first << 1 | first << 2;
      const std::uint64_t code =
          (each & ~first) | _pdep_u64(low, kThirds << 1) | _pdep_u64(negative, kThirds << 2);
      store.put(_pext_u64(code, wanted), popcount(wanted));
      nonzero >>= kAtOnce;
      low >>= kAtOnce;
      negative >>= kAtOnce;
      left -= now;
    }
  }

 private:
  static constexpr unsigned kAtOnce = 21;
  static constexpr std::uint64_t kThirds = 0x1249249249249249;  // every third bit, 21 of them

  std::uint64_t single_ = 0;  // 1: the zero before the word has no partner yet
};

// Puts whole words of the maps. False if a gap is an escape: then the output is useless.
template <unsigned kParameter, class Coder>
bool put_words(const DigitMaps& maps, std::uint32_t used, WordStore& out) noexcept {
  WordStore store = out;
  LongRuns<kMaxUnary << kParameter> runs{};
  Coder coder{};
  for (std::uint32_t at = 0; at < used && !store.full(); at += 64) {
    const MapWord word = load_word(maps, at);
    const unsigned digits = used - at < 64 ? used - at : 64;
    if (runs.end_in(_bzhi_u64(~word.nonzero, digits))) return false;
    coder.put(word, digits, store);
  }
  out = store;
  return true;
}

}  // namespace

std::uint32_t rice(const DigitMaps& maps, std::uint32_t count, const RiceCode& code, std::byte* out,
                   std::uint32_t limit) {
  out[0] = static_cast<std::byte>(code.parameter);
  store_le(out + 1, static_cast<std::uint16_t>(code.nonzeros));
  const std::uint32_t used = used_elements(maps, count);
  std::byte* const codes = out + kRiceHeaderBytes;
  const std::uint32_t room = limit - 1 - kRiceHeaderBytes;
  WordStore words(codes, room);
  if ((code.parameter == 0 && put_words<0, DigitCoder>(maps, used, words)) ||
      (code.parameter == 1 && put_words<1, PairCoder>(maps, used, words))) {
    const std::uint32_t bytes = words.finish();
    return bytes > room ? limit : kRiceHeaderBytes + bytes;
  }
  BitWriter bits = put_gaps(BitWriter(codes, room), maps, used, code.parameter);
  const auto bytes = static_cast<std::uint32_t>(bits.finish());
  return bits.overflowed() ? limit : kRiceHeaderBytes + bytes;
}

// Reading Rice codes.
namespace {

// Which bits of a word are signs, where a code is one bit, 1 for a zero, or two, 0 and a sign. A 0 makes the
// bit after it a sign unless it is one itself, as a backslash escapes the character after it: Langdale and
// Lemire, "Parsing gigabytes of JSON per second" (VLDB Journal 2019), section 3.1.1. `carry`: whether the
// first bit is a sign; then, of the next word.
[[gnu::always_inline]] inline std::uint64_t find_signs(std::uint64_t bits, std::uint64_t& carry) noexcept {
  const std::uint64_t zeros = ~bits & ~carry;
  const std::uint64_t after_zero = zeros << 1 | carry;
  const std::uint64_t odd_starts = zeros & ~kEven & ~after_zero;
  const std::uint64_t runs = odd_starts + zeros;
  carry = runs < zeros ? 1 : 0;
  return (kEven ^ runs << 1) & after_zero;
}

// Parameter 0. See ByteReader. Appends bits to both maps, without a branch: where words end is as good as
// random.
class WordReader {
 public:
  using Sink = MapSink;

  WordReader(const DigitMaps& maps, std::uint32_t next) noexcept
      : maps_(maps),
        bytes_(next / kWord * 8),
        filled_(next % kWord),
        nonzero_(load_le<std::uint64_t>(maps.nonzero + bytes_)),
        negative_(load_le<std::uint64_t>(maps.negative + bytes_)) {}

  // `after`: the bit after these, which is the sign of the last code if that begins with the last bit.
  [[gnu::always_inline]] void add(std::uint64_t bits, std::uint64_t after) noexcept {
    const std::uint64_t signs = find_signs(bits, sign_next_);
    const std::uint64_t starts = ~bits & ~signs;
    nonzeros_ += popcount(starts);
    append(_pext_u64(starts, ~signs), _pext_u64(starts & (bits >> 1 | after << (kWord - 1)), ~signs),
           kWord - popcount(signs));
  }

  [[gnu::always_inline]] std::uint32_t next() const noexcept { return bytes_ * 8 + filled_; }

  [[gnu::always_inline]] std::uint32_t finish() const noexcept {
    store();
    return nonzeros_;
  }

  [[gnu::always_inline]] std::uint32_t end_of_code(std::uint32_t bit, std::uint32_t zeros) const noexcept {
    return sign_next_ != 0 ? bit + 1 : bit - zeros;
  }

 private:
  // REQUIRES: 0 < count <= 64, and no bits beyond it.
  [[gnu::always_inline]] void append(std::uint64_t nonzero, std::uint64_t negative,
                                     std::uint32_t count) noexcept {
    nonzero_ |= nonzero << filled_;
    negative_ |= negative << filled_;
    store();
    const std::uint32_t rest = kWord - 1 - filled_;
    filled_ += count;
    const std::uint64_t full = filled_ / kWord;  // 0 or 1
    const std::uint64_t kept = full - 1;         // all bits or none
    nonzero_ = (nonzero_ & kept) | (nonzero >> 1 >> rest & ~kept);
    negative_ = (negative_ & kept) | (negative >> 1 >> rest & ~kept);
    bytes_ += static_cast<std::uint32_t>(full) * 8;
    filled_ %= kWord;
  }

  [[gnu::always_inline]] void store() const noexcept {
    store_le(maps_.nonzero + bytes_, nonzero_);
    store_le(maps_.negative + bytes_, negative_);
  }

  DigitMaps maps_;
  std::uint32_t bytes_;
  std::uint32_t filled_;  // < 64 between calls
  std::uint64_t nonzero_;
  std::uint64_t negative_;
  std::uint32_t nonzeros_ = 0;
  std::uint64_t sign_next_ = 0;  // 1: the next word begins with the sign of a digit that was appended
};

struct Words {
  [[gnu::always_inline]] static std::uint64_t nonzero(const std::uint8_t* digits) noexcept {
    const auto* const at = reinterpret_cast<const std::byte*>(digits);
    return ~(Block32::load(at).equal(std::byte{0}) | Block32::load(at + 32).equal(std::byte{0}) << 32);
  }
};

}  // namespace

// Parameter 0 is faster by whole words.
bool are_read_as_bytes(unsigned parameter) {
  return parameter > 0 && parameter <= kMostDenseParameter;
}

bool read_digits(const ChunkBytes& rice, std::uint32_t count, std::uint8_t* digits) {
  return read_digits_by<1, Words>(rice, count, digits);
}

bool read_rice(const ChunkBytes& rice, std::uint32_t count, const DigitMaps& maps) {
  Stream stream;
  if (!open_for_maps(rice, count, maps, stream)) return false;
  return stream.parameter == 0 ? read_by<WordReader>(stream, count, maps) : read_codes(stream, count, maps);
}

bool scatter_rice(const ChunkBytes& rice, const DecodeTarget& target) {
  return scatter_rice_into(rice, target);
}

// Decodes by the chunk's mode if all of it is there. Invalid chunks are left to the reference, which says
// what is wrong.
Fault decode_chunk(const ChunkBytes& chunk, const DecodeTarget& target) {
  if (chunk.bytes == 0 || target.zeros_only) return decode_as_reference(chunk, target);
  switch (static_cast<std::uint8_t>(chunk.at[0])) {
    case static_cast<std::uint8_t>(ChunkMode::kBase3):
      return chunk.bytes == 1 + packed_bytes(target.count) ? decode_packed(chunk.at + 1, target)
                                                           : decode_as_reference(chunk, target);
    case static_cast<std::uint8_t>(ChunkMode::kZeroRuns): return decode_runs(chunk, target);
    case static_cast<std::uint8_t>(ChunkMode::kRice): return decode_rice(chunk, target);
    default: return &faults::kUnknownMode;
  }
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
