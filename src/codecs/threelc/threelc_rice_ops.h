// Rice codes by words of 64 bits, for vector kernels. Chunks of short gaps are read into maps by whole words
// of the stream, others code by code. An invalid chunk is left to the reference's decoder, which says what is
// wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/kernels/rice.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_vectors_ops.h"

namespace deltawire::threelc {

// Looks in a stream of bits, 64 at a time, for kLength ones in a row.
template <unsigned kLength>
class LongRuns {
 public:
  [[gnu::always_inline]] LongRuns() noexcept = default;

  // Whether such a run ends in this word. It lies in at most two words, and half of it in one of them: both
  // are examined together only where one of them holds that much.
  [[gnu::always_inline]] bool end_in(std::uint64_t ones) noexcept {
    static_assert(kLength <= 64);
    unsigned length = 1;
    std::uint64_t ends = ones;
    for (; length * 2 <= kLength / 2; length *= 2) ends &= ends << length;
    ends &= ends << (kLength / 2 - length);
    const bool half = ends != 0;
    const bool found = (half || half_before_) && end_in_both(ones);
    before_ = ones;
    half_before_ = half;
    return found;
  }

 private:
  [[gnu::always_inline]] bool end_in_both(std::uint64_t ones) const noexcept {
    std::uint64_t ends = ones;
    for (unsigned step = 1; step < kLength; ++step) ends &= ones << step | before_ >> (64 - step);
    return ends != 0;
  }

  std::uint64_t before_ = 0;
  bool half_before_ = false;
};

// Elements whose places are found at once, a multiple of 64.
inline constexpr std::uint32_t kPlacesBlock = 2048;

// Where nonzero digits stand: twice the position after each, and the sign. The first entry is the last of the
// block before.
struct Places {
  std::uint32_t at[1 + kPlacesBlock + 16];  // and what a vector may write behind the last
  std::uint32_t count;                      // without the first
};

// Finds the places in [begin, end), at most a block. REQUIRES: begin is a multiple of 64, and from `end` on
// the maps' words are 0.
[[gnu::always_inline]] inline void find_few_places(const DigitMaps& maps, std::uint32_t begin,
                                                   std::uint32_t end, Places& places) noexcept {
  constexpr std::uint64_t kLast = std::uint64_t{1} << 63;  // so that a set bit exists
  std::uint32_t* to = places.at + 1;
  for (std::uint32_t at = begin; at < end; at += 64) {
    auto nonzero = load_le<std::uint64_t>(maps.nonzero + at / 8);
    const auto negative = load_le<std::uint64_t>(maps.negative + at / 8);
    std::uint32_t* const after = to + popcount(nonzero);
    while (to < after) {
      for (unsigned i = 0; i < 4; ++i) {  // at most three too many: the next ones overwrite them
        const std::uint32_t bit = countr_zero(nonzero | kLast);
        *to++ = (at + bit + 1) * 2 + static_cast<std::uint32_t>(negative >> bit & 1);
        nonzero &= nonzero - 1;
      }
    }
    to = after;
  }
  places.count = static_cast<std::uint32_t>(to - (places.at + 1));
}

namespace DELTAWIRE_TARGET {

// The same, faster where they are many.
void find_places(const DigitMaps& maps, std::uint32_t begin, std::uint32_t end, Places& places);

inline constexpr std::uint32_t kWord = 64;
inline constexpr unsigned kMostCodeBits = kMaxUnary + kRiceEscapeBits + 1;

// REQUIRES: bits < 64.
[[gnu::always_inline]] inline std::uint64_t low_bits(std::uint64_t value, unsigned bits) noexcept {
  return value & ((std::uint64_t{1} << bits) - 1);
}

// A chunk's code in memory behind which zeros may be read.
struct Stream {
  std::byte bytes[kMostPackedBytes + kRoom];
  std::uint32_t bits;
  std::uint32_t nonzeros;
  unsigned parameter;
};

// False if the header is wrong, or the code longer than the form that an encoder would have preferred.
[[gnu::always_inline]] inline bool open(const ChunkBytes& rice, std::uint32_t count,
                                        Stream& stream) noexcept {
  if (rice.bytes < kRiceHeaderBytes || rice.bytes > kMostPackedBytes) return false;
  stream.parameter = static_cast<unsigned>(rice.at[0]);
  stream.nonzeros = load_le<std::uint16_t>(rice.at + 1);
  if (stream.parameter > kRiceMaxParameter || stream.nonzeros > count) return false;
  const std::uint32_t bytes = rice.bytes - kRiceHeaderBytes;
  stream.bits = bytes * 8;
  if (bytes > 0) std::memcpy(stream.bytes, rice.at + kRiceHeaderBytes, bytes);
  std::memset(stream.bytes + bytes, 0, kRoom);
  return true;
}

// Where a reader stands.
struct Place {
  std::uint32_t bit = 0;     // of the stream
  std::uint32_t next = 0;    // the position after the last one
  std::uint32_t digits = 0;  // read so far
};

// Whether after the last code there is less than a byte, of zeros.
[[gnu::always_inline]] inline bool ends_cleanly(const Stream& stream, std::uint32_t bit) noexcept {
  if (bit > stream.bits || stream.bits - bit >= 8) return false;
  return low_bits(load_le<std::uint64_t>(stream.bytes + bit / 8) >> bit % 8, stream.bits - bit) == 0;
}

// The next bits of the stream, inverted, so that the ones before a code's zero become zeros to count.
class Window {
 public:
  [[gnu::always_inline]] Window(const Stream& stream, std::uint32_t bit) noexcept
      : at_(stream.bytes + bit / 8), end_(stream.bytes + stream.bits / 8 + 8), origin_(stream.bytes) {
    fill();
    drop(bit % 8);
  }

  // At least 56 bits are there. False, and nothing done, where the stream has ended long before.
  [[gnu::always_inline]] bool fill() noexcept {
    if (at_ > end_) return false;
    bits_ |= ~load_le<std::uint64_t>(at_) << left_;
    at_ += (63 - left_) / 8;
    left_ |= 56;
    return true;
  }
  [[gnu::always_inline]] void drop(unsigned count) noexcept {
    bits_ >>= count;
    left_ -= count;
  }
  [[gnu::always_inline]] std::uint64_t inverted() const noexcept { return bits_; }
  [[gnu::always_inline]] bool has_code() const noexcept { return left_ >= kMostCodeBits; }
  [[gnu::always_inline]] std::uint32_t bit() const noexcept {
    return static_cast<std::uint32_t>(at_ - origin_) * 8 - left_;
  }

 private:
  const std::byte* at_;
  const std::byte* end_;
  const std::byte* origin_;
  std::uint64_t bits_ = 0;
  unsigned left_ = 0;
};

struct Code {
  std::uint32_t gap;
  std::uint64_t negative;
  bool valid;
};

// REQUIRES: window.has_code().
[[gnu::always_inline]] inline Code take_code(Window& window, unsigned parameter) noexcept {
  const unsigned unary = countr_zero(window.inverted());
  if (unary >= kMaxUnary) {
    const std::uint64_t raw = ~window.inverted() >> kMaxUnary;
    const auto gap = static_cast<std::uint32_t>(low_bits(raw, kRiceEscapeBits));
    window.drop(kMostCodeBits);
    return {gap, raw >> kRiceEscapeBits & 1, gap >> parameter >= kMaxUnary};
  }
  const std::uint64_t low = ~window.inverted() >> (unary + 1);
  window.drop(unary + parameter + 2);
  return {unary << parameter | static_cast<std::uint32_t>(low_bits(low, parameter)), low >> parameter & 1,
          true};
}

template <class Sink>
[[gnu::always_inline]] inline bool take_into(Window& window, unsigned parameter, Sink& sink) noexcept {
  const Code code = take_code(window, parameter);
  return code.valid && sink.add(code.gap, code.negative);
}

// Passes the remaining digits to sink.add(gap, negative). False if that returns false, if codes aren't valid,
// or don't end where the stream does. Most codes are so short that one load serves two.
template <class Sink>
[[gnu::always_inline]] inline bool read_rest(const Stream& stream, const Place& place, Sink& sink) noexcept {
  Window window(stream, place.bit);
  std::uint32_t left = stream.nonzeros - place.digits;
  for (; left >= 2; left -= 2) {
    if (!window.fill() || !take_into(window, stream.parameter, sink)) return false;
    if (!window.has_code() && !window.fill()) return false;
    if (!take_into(window, stream.parameter, sink)) return false;
  }
  if (left > 0 && !(window.fill() && take_into(window, stream.parameter, sink))) return false;
  return ends_cleanly(stream, window.bit());
}

// Sets digits in maps that are 0 from `next` on, without a branch where words end, which would often be
// mispredicted.
class MapSink {
 public:
  [[gnu::always_inline]] MapSink(const DigitMaps& maps, std::uint32_t next, std::uint32_t count) noexcept
      : maps_(maps),
        next_(next),
        count_(count),
        word_(next / kWord),
        nonzero_(load_le<std::uint64_t>(maps.nonzero + word_ * 8)),
        negative_(load_le<std::uint64_t>(maps.negative + word_ * 8)) {}

  [[gnu::always_inline]] bool add(std::uint32_t gap, std::uint64_t negative) noexcept {
    next_ += gap;
    if (next_ >= count_) return false;
    const std::uint32_t word = next_ / kWord;
    const std::uint64_t same = 0 - static_cast<std::uint64_t>(word == word_);  // all bits, or none
    nonzero_ = (nonzero_ & same) | std::uint64_t{1} << next_ % kWord;
    negative_ = (negative_ & same) | negative << next_ % kWord;
    word_ = word;
    store_le(maps_.nonzero + word * 8, nonzero_);
    store_le(maps_.negative + word * 8, negative_);
    ++next_;
    return true;
  }

  [[gnu::always_inline]] std::uint32_t next() const noexcept { return next_; }

 private:
  DigitMaps maps_;
  std::uint32_t next_;
  std::uint32_t count_;
  std::uint32_t word_;  // of the last one, and its bits
  std::uint64_t nonzero_;
  std::uint64_t negative_;
};

// Sets digits in a slot, or adds them.
template <bool kAdds>
class SlotSink {
 public:
  [[gnu::always_inline]] explicit SlotSink(const DecodeTarget& target) noexcept
      : slot_(target.slot), left_(target.count), values_{target.value, -target.value} {}

  [[gnu::always_inline]] bool add(std::uint32_t gap, std::uint64_t negative) noexcept {
    if (gap >= left_) return false;
    left_ -= gap + 1;
    slot_ += gap;
    const float value = values_[negative];
    *slot_ = kAdds ? *slot_ + value : value;
    ++slot_;
    return true;
  }

 private:
  float* slot_;
  std::uint32_t left_;
  float values_[2];
};

// Bits of both maps, for 64 elements.
struct MapWord {
  std::uint64_t nonzero = 0;
  std::uint64_t negative = 0;
};

// Sets digits in bytes that are 0 from `next` on.
class ByteSink {
 public:
  [[gnu::always_inline]] ByteSink(std::uint8_t* digits, std::uint32_t next, std::uint32_t count) noexcept
      : digits_(digits), next_(next), count_(count) {}

  [[gnu::always_inline]] bool add(std::uint32_t gap, std::uint64_t negative) noexcept {
    next_ += gap;
    if (next_ >= count_) return false;
    digits_[next_++] = negative != 0 ? kNegativeDigit : kPositiveDigit;
    return true;
  }

  [[gnu::always_inline]] std::uint32_t next() const noexcept { return next_; }

 private:
  std::uint8_t* digits_;
  std::uint32_t next_;
  std::uint32_t count_;
};

// Reads words of the stream by tables, a byte at a time, into digits of a byte each, which are 0 from `next`
// on. Writes up to kDigitRoom behind those it reads. Words::nonzero(digits) says which of 64 aren't 0.
template <unsigned kParameter, class Words>
class ByteReader {
 public:
  using Sink = ByteSink;

  [[gnu::always_inline]] ByteReader(std::uint8_t* digits, std::uint32_t next) noexcept
      : digits_(digits), begin_(next), next_(next) {}

  // Reads 64 bits.
  [[gnu::always_inline]] void add(std::uint64_t bits, std::uint64_t) noexcept {
    constexpr const RiceBytes<kParameter>& kTable = kRiceBytes<kParameter>;
    std::uint8_t* to = digits_ + next_;
    std::uint64_t place = place_;
    for (unsigned at = 0; at < kWord; at += 8) {
      const std::uint64_t byte = bits >> at & 0xFF;
      const std::uint64_t found = byte * kMostPlaces + place / kPlaceBits % kMostPlaces;
      std::memcpy(to, kTable.digits[found], kTable.kMostElements);
      to += kTable.elements[found];
      place = kTable.next[byte] >> (place & 63);
    }
    place_ = place;
    next_ = static_cast<std::uint32_t>(to - digits_);
  }

  // The position after the last element that was read.
  [[gnu::always_inline]] std::uint32_t next() const noexcept { return next_; }

  // How many digits are nonzero.
  [[gnu::always_inline]] std::uint32_t finish() const noexcept {
    std::uint32_t nonzeros = 0;
    for (std::uint32_t at = begin_; at < next_; at += kWord)
      nonzeros += popcount(Words::nonzero(digits_ + at));
    return nonzeros;
  }

  // Where the last whole code ends, behind which `zeros` elements were found up to here, at bit `bit`.
  [[gnu::always_inline]] std::uint32_t end_of_code(std::uint32_t bit, std::uint32_t zeros) const noexcept {
    return bit - (zeros >> kParameter) - static_cast<std::uint32_t>(place_) / kPlaceBits % kMostPlaces;
  }

 private:
  std::uint8_t* digits_;
  std::uint32_t begin_;
  std::uint32_t next_;
  std::uint64_t place_ = 0;  // in a code; the lowest bits: see RiceBytes::next
};

// The position after the last nonzero digit in [begin, end), or `begin`.
[[gnu::always_inline]] inline std::uint32_t after_last(const DigitMaps& maps, std::uint32_t begin,
                                                       std::uint32_t end) noexcept {
  while (end > begin) {
    const std::uint32_t word = (end - 1) / kWord;
    const auto nonzero = load_le<std::uint64_t>(maps.nonzero + word * 8);
    if (nonzero != 0) return word * kWord + bit_width(nonzero);
    end = word * kWord;
  }
  return begin;
}

[[gnu::always_inline]] inline std::uint32_t after_last(const std::uint8_t* digits, std::uint32_t begin,
                                                       std::uint32_t end) noexcept {
  while (end > begin && digits[end - 1] == 0) --end;
  return end;
}

// Bits at the end that are not read by words, as they may hold the end of the last code: a word and the
// padding of the last byte.
inline constexpr std::uint32_t kLastBits = kWord + 8;

// Reads words, up to where single codes must be looked at: an escape, or the last of all. Leaves the place
// behind the last whole code, and in `stopped` the bit at which the next word would have begun. False if
// there are too many elements.
template <class Reader, class Digits>
[[gnu::always_inline]] inline bool read_words(const Stream& stream, std::uint32_t count, const Digits& digits,
                                              Place& place, std::uint32_t& stopped) noexcept {
  Reader reader(digits, place.next);
  LongRuns<kMaxUnary> runs{};
  std::uint32_t bit = place.bit;
  for (; bit + kLastBits <= stream.bits; bit += kWord) {
    const std::uint64_t after = static_cast<std::uint64_t>(stream.bytes[bit / 8 + 8]) >> bit % 8;
    const std::uint64_t above = static_cast<std::uint64_t>(stream.bytes[bit / 8 + 8]) << 1;
    const std::uint64_t bits =
        load_le<std::uint64_t>(stream.bytes + bit / 8) >> bit % 8 | above << (kWord - 1 - bit % 8);
    if (runs.end_in(bits)) break;
    reader.add(bits, after & 1);
    if (reader.next() > count) return false;
  }
  const std::uint32_t found = reader.next();
  const std::uint32_t nonzeros = reader.finish();
  const std::uint32_t next = after_last(digits, place.next, found);
  place = {reader.end_of_code(bit, found - next), next, place.digits + nonzeros};
  stopped = bit;
  return true;
}

// Reads single codes up to one that ends behind bit `until`. False as above, or if there is none.
template <class Sink>
[[gnu::always_inline]] inline bool read_past(const Stream& stream, std::uint32_t until, Place& place,
                                             Sink& sink) noexcept {
  Window window(stream, place.bit);
  while (window.bit() < until) {
    if (place.digits == stream.nonzeros || !window.fill()) return false;
    if (!take_into(window, stream.parameter, sink)) return false;
    ++place.digits;
  }
  place.bit = window.bit();
  place.next = sink.next();
  return true;
}

// Not inlined, so that each reader's loop has all registers.
template <class Reader, class Digits>
[[gnu::noinline]] bool read_by(const Stream& stream, std::uint32_t count, const Digits& digits) noexcept {
  Place place{};
  std::uint32_t stopped = 0;
  for (;;) {
    if (!read_words<Reader>(stream, count, digits, place, stopped)) return false;
    if (place.digits > stream.nonzeros) return false;
    typename Reader::Sink sink(digits, place.next, count);
    if (stopped + kLastBits > stream.bits) return read_rest(stream, place, sink);
    if (!read_past(stream, stopped + kWord, place, sink)) return false;
  }
}

// Kernel read_digits, of parameters from kLeast on.
template <unsigned kLeast, class Words>
[[gnu::always_inline]] inline bool read_digits_by(const ChunkBytes& rice, std::uint32_t count,
                                                  std::uint8_t* digits) noexcept {
  Stream stream;
  if (!open(rice, count, stream)) return false;
  std::memset(digits, 0, count + kDigitRoom);
  if constexpr (kLeast == 0) {
    if (stream.parameter == 0) return read_by<ByteReader<0, Words>>(stream, count, digits);
  }
  if (stream.parameter == 1) return read_by<ByteReader<1, Words>>(stream, count, digits);
  return read_by<ByteReader<2, Words>>(stream, count, digits);
}

// Opens the stream and clears the maps, which a reader is to fill.
[[gnu::always_inline]] inline bool open_for_maps(const ChunkBytes& rice, std::uint32_t count,
                                                 const DigitMaps& maps, Stream& stream) noexcept {
  if (!open(rice, count, stream)) return false;
  std::memset(maps.nonzero, 0, map_bytes(count) + kWord / 8);  // a writer at the end looks at a word more
  std::memset(maps.negative, 0, map_bytes(count) + kWord / 8);
  return true;
}

// Reads all codes one by one.
[[gnu::always_inline]] inline bool read_codes(const Stream& stream, std::uint32_t count,
                                              const DigitMaps& maps) noexcept {
  MapSink sink(maps, 0, count);
  return read_rest(stream, {}, sink);
}

// Kernel scatter_rice.
[[gnu::always_inline]] inline bool scatter_rice_into(const ChunkBytes& rice,
                                                     const DecodeTarget& target) noexcept {
  Stream stream;
  if (!open(rice, target.count, stream)) return false;
  if (target.accumulate) {
    SlotSink<true> sink(target);
    return read_rest(stream, {}, sink);
  }
  std::memset(target.slot, 0, target.count * sizeof(float));
  SlotSink<false> sink(target);
  return read_rest(stream, {}, sink);
}

}  // namespace DELTAWIRE_TARGET

}  // namespace deltawire::threelc
