// Positions and signs in Rice codes, with the bit instructions of BMI2.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/kernels/rice.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_rice_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

// Bits, first bit lowest, into memory that ends: 8 bytes are stored at once while there is room for them.
class BitStore {
 public:
  BitStore(std::byte* out, std::uint32_t bytes) noexcept : at_(out), end_(out + bytes) {}

  // REQUIRES: bits <= 56.
  [[gnu::always_inline]] void put(std::uint64_t value, unsigned bits) noexcept {
    pending_ |= value << filled_;
    filled_ += bits;
    const unsigned whole = filled_ / 8;
    if (end_ - at_ >= 8) {
      store_le(at_, pending_);
    } else {
      store_last(whole);
    }
    at_ += full_ ? 0 : whole;
    pending_ >>= whole * 8;
    filled_ %= 8;
  }

  // Pads the last byte with zeros. Where the bits end, or null if they didn't fit.
  std::byte* finish() noexcept {
    if (filled_ > 0) put(0, 8 - filled_);
    return full_ ? nullptr : at_;
  }

  bool full() const noexcept { return full_; }

 private:
  [[gnu::always_inline]] void store_last(unsigned whole) noexcept {
    full_ = full_ || end_ - at_ < static_cast<std::ptrdiff_t>(whole);
    for (unsigned i = 0; i < whole && !full_; ++i)
      at_[i] = static_cast<std::byte>(pending_ >> (i * 8) & 0xFF);
  }

  std::byte* at_;
  std::byte* end_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;  // < 8 between calls
  bool full_ = false;
};

struct MapWord {
  std::uint64_t nonzero;
  std::uint64_t negative;
};

MapWord load_word(const DigitMaps& maps, std::uint32_t at) noexcept {
  return {load_le<std::uint64_t>(maps.nonzero + at / 8), load_le<std::uint64_t>(maps.negative + at / 8)};
}

[[gnu::always_inline]] inline void put_gap(BitStore& bits, std::uint32_t gap, std::uint64_t negative,
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

constexpr std::uint32_t kBlock = 512;  // elements whose places are found at once

// Where digits stand that aren't 0: twice the position after them, and the sign. The first is the last of the
// block before.
struct Places {
  std::uint32_t at[1 + kBlock + 4];
  std::uint32_t count;  // without the first
};

void find_places(const DigitMaps& maps, std::uint32_t begin, std::uint32_t end, Places& places) noexcept {
  std::uint32_t* to = places.at + 1;
  for (std::uint32_t at = begin; at < end; at += 64) {
    MapWord word = load_word(maps, at);
    std::uint32_t* const after = to + popcount(word.nonzero);
    while (to < after) {
      for (unsigned i = 0; i < 4; ++i) {  // at most three too many: the next ones overwrite them
        const auto bit = static_cast<std::uint32_t>(_tzcnt_u64(word.nonzero));
        *to++ = (at + bit + 1) * 2 + static_cast<std::uint32_t>(word.negative >> bit % 64 & 1);
        word.nonzero = _blsr_u64(word.nonzero);
      }
    }
    to = after;
  }
  places.count = static_cast<std::uint32_t>(to - (places.at + 1));
}

[[gnu::always_inline]] inline void put_place(BitStore& bits, const std::uint32_t* place,
                                             unsigned parameter) noexcept {
  put_gap(bits, (place[0] >> 1) - (place[-1] >> 1) - 1, place[0] & 1, parameter);
}

// The codes of eight places, two in each 64-bit lane. False, and nothing put, if they aren't so short.
// REQUIRES: parameter <= kMostOfEight.
constexpr unsigned kMostOfEight = 7;  // so that a code that is no escape has at most 32 bits

[[gnu::always_inline]] inline bool put_eight(BitStore& bits, const std::uint32_t* places,
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
                                           _mm256_cmpgt_epi32(pair_length, _mm256_set1_epi64x(56)));
  if (_mm256_testz_si256(too_long, too_long) == 0) return false;
  alignas(32) std::uint64_t values[4];
  alignas(32) std::uint64_t lengths[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(values), pair);
  _mm256_store_si256(reinterpret_cast<__m256i*>(lengths), pair_length);
  for (unsigned i = 0; i < 4; ++i) bits.put(values[i], static_cast<unsigned>(lengths[i]));
  return true;
}

// Takes and gives back `bits` by value, which keeps them in registers.
BitStore put_gaps(BitStore bits, const DigitMaps& maps, std::uint32_t count, unsigned parameter) noexcept {
  Places places;
  places.at[0] = 0;
  for (std::uint32_t begin = 0; begin < count && !bits.full(); begin += kBlock) {
    const std::uint32_t left = count - begin;
    find_places(maps, begin, begin + (left < kBlock ? left : kBlock), places);
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

bool has_escape(const DigitMaps& maps, std::uint32_t used) noexcept {
  LongRuns runs;
  bool any = false;
  for (std::uint32_t at = 0; at < used; at += 64) {
    const std::uint64_t zeros = ~load_word(maps, at).nonzero;
    const std::uint32_t left = used - at;
    any |= runs.end_in(left < 64 ? _bzhi_u64(zeros, left) : zeros);
  }
  return any;
}

// Appends up to 64 bits at once. The bytes are known in advance to be enough.
class WordStore {
 public:
  WordStore(std::byte* out, std::uint32_t bytes) noexcept : at_(out), end_(out + bytes) {}

  // REQUIRES: 0 < bits <= 64, and no bits beyond them in `value`.
  [[gnu::always_inline]] void put(std::uint64_t value, unsigned bits) noexcept {
    pending_ |= value << filled_;
    store();
    const unsigned taken = filled_;
    filled_ += bits;
    const bool full = filled_ >= 64;
    pending_ = full ? value >> 1 >> (63 - taken) : pending_;
    at_ += full ? 8 : 0;
    filled_ %= 64;
  }

  [[gnu::always_inline]] void store() const noexcept {
    if (end_ - at_ >= 8) return store_le(at_, pending_);
    for (std::ptrdiff_t i = 0; i < end_ - at_; ++i) {
      at_[i] = static_cast<std::byte>(pending_ >> (i * 8) & 0xFF);
    }
  }

 private:
  std::byte* at_;
  std::byte* end_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;  // < 64 between calls
};

// Parameter 0 and no escape: the code is a 1 for each 0, and a 0 and the sign for each other digit. So 32
// digits at once are spread to two bits each, of which the zeros' second ones are left out.
void put_digits(const DigitMaps& maps, std::uint32_t used, std::byte* out, std::uint32_t bytes) noexcept {
  constexpr std::uint64_t kEven = 0x5555555555555555;
  WordStore store(out, bytes);
  for (std::uint32_t at = 0; at < used; at += 32) {
    const std::uint64_t nonzero = load_le<std::uint32_t>(maps.nonzero + at / 8);
    const std::uint64_t negative = load_le<std::uint32_t>(maps.negative + at / 8);
    const std::uint32_t left = used - at;
    const unsigned digits = left < 32 ? left : 32;
    const std::uint64_t wanted = _bzhi_u64(kEven | _pdep_u64(nonzero, ~kEven), 2 * digits);
    store.put(_pext_u64(_pdep_u64(~nonzero, kEven) | _pdep_u64(negative, ~kEven), wanted),
              digits + popcount(nonzero));
  }
  store.store();
}

}  // namespace

std::uint32_t rice(const DigitMaps& maps, std::uint32_t count, const RiceCode& code, std::byte* out,
                   std::uint32_t limit) {
  out[0] = static_cast<std::byte>(code.parameter);
  store_le(out + 1, static_cast<std::uint16_t>(code.nonzeros));
  const std::uint32_t used = used_elements(maps, count);
  if (code.parameter == 0 && !has_escape(maps, used)) {
    const std::uint32_t bytes = (used + code.nonzeros + 7) / 8;
    if (kRiceHeaderBytes + bytes >= limit) return limit;
    put_digits(maps, used, out + kRiceHeaderBytes, bytes);
    return kRiceHeaderBytes + bytes;
  }
  BitStore bits =
      put_gaps(BitStore(out + kRiceHeaderBytes, limit - 1 - kRiceHeaderBytes), maps, used, code.parameter);
  const std::byte* end = bits.finish();
  return end == nullptr ? limit : static_cast<std::uint32_t>(end - out);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
