// Positions and signs in Rice codes, with the bit instructions of BMI2.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/kernels/rice.h"
#include "codecs/threelc/threelc_ops.h"

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
      if (full_) return;
    }
    at_ += whole;
    pending_ = whole < 8 ? pending_ >> (whole * 8) : 0;
    filled_ %= 8;
  }

  // Pads the last byte with zeros. Where the bits end, or null if they didn't fit.
  std::byte* finish() noexcept {
    if (filled_ > 0) put(0, 8 - filled_);
    return full_ ? nullptr : at_;
  }

  bool full() const noexcept { return full_; }

 private:
  void store_last(unsigned whole) noexcept {
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

void put_gap(BitStore& bits, std::uint32_t gap, std::uint64_t negative, unsigned parameter) noexcept {
  const std::uint32_t unary = gap >> parameter;
  if (unary >= kMaxUnary) {
    const RiceBits code = rice_bits_of(gap, parameter, kRiceEscapeBits);
    bits.put(code.value | negative << code.bits, code.bits + 1);
    return;
  }
  const std::uint64_t low = _bzhi_u32(gap, parameter) | negative << parameter;
  bits.put(low << (unary + 1) | ((std::uint64_t{1} << unary) - 1), unary + parameter + 2);
}

void put_gaps(BitStore& bits, const DigitMaps& maps, std::uint32_t count, unsigned parameter) noexcept {
  std::uint32_t next = 0;  // the position after the last one
  for (std::uint32_t at = 0; at < count && !bits.full(); at += 64) {
    MapWord word = load_word(maps, at);
    for (; word.nonzero != 0; word.nonzero &= word.nonzero - 1) {
      const std::uint32_t position = at + countr_zero(word.nonzero);
      put_gap(bits, position - next, word.negative >> position % 64 & 1, parameter);
      next = position + 1;
    }
  }
}

// Elements up to the last one that isn't 0.
std::uint32_t used_elements(const DigitMaps& maps, std::uint32_t count) noexcept {
  for (std::uint32_t words = map_bytes(count) / 8; words > 0; --words) {
    const std::uint64_t word = load_word(maps, (words - 1) * 64).nonzero;
    if (word != 0) return (words - 1) * 64 + bit_width(word);
  }
  return 0;
}

// Whether so many zeros that an escape announces them come one after the other.
bool has_escape(const DigitMaps& maps, std::uint32_t used) noexcept {
  std::uint64_t before[5] = {};  // the last word: where runs of 1, 2, 4, 8, 16 zeros end
  std::uint64_t any = 0;
  for (std::uint32_t at = 0; at < used; at += 64) {
    std::uint64_t ends = ~load_word(maps, at).nonzero;
    if (used - at < 64) ends &= (std::uint64_t{1} << (used - at)) - 1;
    for (unsigned i = 0; i < 5; ++i) {
      const unsigned step = i < 4 ? 1U << i : 8;  // 1 + 1, 2 + 2, 4 + 4, 8 + 8, 16 + 8
      const std::uint64_t shifted = ends << step | before[i] >> (64 - step);
      before[i] = ends;
      ends &= shifted;
    }
    any |= ends;
  }
  return any != 0;
}

// Parameter 0 and no escape: the code is a 1 for each 0, and a 0 and the sign for each other digit. So 32
// digits at once are spread to two bits each, of which the zeros' second ones are left out.
void put_digits(BitStore& bits, const DigitMaps& maps, std::uint32_t used) noexcept {
  constexpr std::uint64_t kEven = 0x5555555555555555;
  for (std::uint32_t at = 0; at < used && !bits.full(); at += 32) {
    const MapWord word = load_word(maps, at - at % 64);
    const std::uint64_t nonzero = static_cast<std::uint32_t>(word.nonzero >> at % 64);
    const std::uint64_t negative = static_cast<std::uint32_t>(word.negative >> at % 64);
    const std::uint32_t left = used - at;
    const unsigned digits = left < 32 ? left : 32;
    const std::uint64_t inside = _bzhi_u64(~std::uint64_t{0}, 2 * digits);
    const std::uint64_t wanted = (kEven | _pdep_u64(nonzero, ~kEven)) & inside;
    const std::uint64_t code = _pext_u64(_pdep_u64(~nonzero, kEven) | _pdep_u64(negative, ~kEven), wanted);
    const unsigned length = digits + popcount(nonzero);
    const unsigned first = length < 32 ? length : 32;
    bits.put(_bzhi_u64(code, first), first);
    bits.put(code >> 32, length - first);
  }
}

}  // namespace

std::uint32_t rice(const DigitMaps& maps, std::uint32_t count, const RiceCode& code, std::byte* out,
                   std::uint32_t limit) {
  out[0] = static_cast<std::byte>(code.parameter);
  store_le(out + 1, static_cast<std::uint16_t>(code.nonzeros));
  BitStore bits(out + kRiceHeaderBytes, limit - 1 - kRiceHeaderBytes);
  const std::uint32_t used = used_elements(maps, count);
  if (code.parameter == 0 && !has_escape(maps, used)) {
    put_digits(bits, maps, used);
  } else {
    put_gaps(bits, maps, used, code.parameter);
  }
  const std::byte* end = bits.finish();
  return end == nullptr ? limit : static_cast<std::uint32_t>(end - out);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
