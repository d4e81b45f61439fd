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
#include "codecs/threelc/threelc_unpack_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kWord = 64;
constexpr unsigned kMostCodeBits = kMaxUnary + kRiceEscapeBits + 1;

// A chunk's code in memory behind which zeros may be read.
struct Stream {
  std::byte bytes[kMostPackedBytes + kRoom];
  std::uint32_t bits = 0;
  std::uint32_t nonzeros = 0;
  unsigned parameter = 0;
};

// False where the header is wrong, or the code longer than what an encoder would take it for.
bool open(const ChunkBytes& rice, std::uint32_t count, Stream& stream) noexcept {
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

std::uint64_t bits_from(const Stream& stream, std::uint32_t bit) noexcept {
  return load_le<std::uint64_t>(stream.bytes + bit / 8) >> bit % 8;
}

// Whether after the last code there is less than a byte, of zeros.
bool ends_cleanly(const Stream& stream, std::uint32_t bit) noexcept {
  return bit <= stream.bits && stream.bits - bit < 8 &&
         _bzhi_u64(bits_from(stream, bit), stream.bits - bit) == 0;
}

// The next bits of the stream, inverted: the ones before a code's zero are then zeros to count.
class Window {
 public:
  Window(const Stream& stream, std::uint32_t bit) noexcept
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
  std::uint32_t bit() const noexcept { return static_cast<std::uint32_t>(at_ - origin_) * 8 - left_; }

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
  const auto unary = static_cast<unsigned>(_tzcnt_u64(window.inverted()));
  if (unary >= kMaxUnary) {
    const std::uint64_t raw = ~window.inverted() >> kMaxUnary;
    const auto gap = static_cast<std::uint32_t>(_bzhi_u64(raw, kRiceEscapeBits));
    window.drop(kMostCodeBits);
    return {gap, raw >> kRiceEscapeBits & 1, gap >> parameter >= kMaxUnary};
  }
  const std::uint64_t low = ~window.inverted() >> (unary + 1);
  window.drop(unary + parameter + 2);
  return {unary << parameter | static_cast<std::uint32_t>(_bzhi_u64(low, parameter)), low >> parameter & 1,
          true};
}

template <class Sink>
[[gnu::always_inline]] inline bool take_into(Window& window, unsigned parameter, Sink& sink) noexcept {
  const Code code = take_code(window, parameter);
  return code.valid && sink.add(code.gap, code.negative);
}

// Gives sink.add(gap, negative) the rest of the digits. False if it does, if codes aren't valid, or don't end
// where the stream does. Most codes are so short that two are read after one look at memory.
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

// Digits of maps that are 0 from `next` on.
class MapSink {
 public:
  MapSink(const DigitMaps& maps, std::uint32_t next, std::uint32_t count) noexcept
      : maps_(maps), count_(count), word_(next / kWord), bit_(next % kWord) {
    load();
  }

  [[gnu::always_inline]] bool add(std::uint32_t gap, std::uint64_t negative) noexcept {
    bit_ += gap;
    if (bit_ >= kWord && !advance()) return false;
    nonzero_ |= std::uint64_t{1} << bit_;
    negative_ |= negative << bit_;
    ++bit_;
    return true;
  }

  // False if a position was outside the chunk.
  bool finish() noexcept {
    store();
    return word_ * kWord + bit_ <= count_;
  }

 private:
  bool advance() noexcept {
    store();
    word_ += bit_ / kWord;
    bit_ %= kWord;
    if (word_ * kWord >= count_) return false;
    load();
    return true;
  }
  void load() noexcept {
    nonzero_ = load_le<std::uint64_t>(maps_.nonzero + word_ * 8);
    negative_ = load_le<std::uint64_t>(maps_.negative + word_ * 8);
  }
  void store() noexcept {
    store_le(maps_.nonzero + word_ * 8, nonzero_);
    store_le(maps_.negative + word_ * 8, negative_);
  }

  DigitMaps maps_;
  std::uint32_t count_;
  std::uint32_t word_;
  std::uint32_t bit_;
  std::uint64_t nonzero_ = 0;
  std::uint64_t negative_ = 0;
};

// One byte a digit, for chunks of many: 0, kPlus or kMinus.
constexpr std::uint8_t kPlus = 0x01;
constexpr std::uint8_t kMinus = 0x81;

class ByteSink {
 public:
  ByteSink(std::uint8_t* digits, std::uint32_t count) noexcept : digits_(digits), count_(count) {}

  [[gnu::always_inline]] bool add(std::uint32_t gap, std::uint64_t negative) noexcept {
    next_ += gap;
    if (next_ >= count_) return false;
    digits_[next_++] = static_cast<std::uint8_t>(kPlus + (kMinus - kPlus) * negative);
    return true;
  }

 private:
  std::uint8_t* digits_;
  std::uint32_t count_;
  std::uint32_t next_ = 0;
};

std::uint64_t sign_bits(__m256i bytes) noexcept {
  return static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
}

void store_maps(const std::uint8_t* digits, std::uint32_t count, const DigitMaps& maps) noexcept {
  for (std::uint32_t at = 0; at < count; at += kWord) {
    const __m256i first = _mm256_load_si256(reinterpret_cast<const __m256i*>(digits + at));
    const __m256i last = _mm256_load_si256(reinterpret_cast<const __m256i*>(digits + at + kWord / 2));
    const __m256i none = _mm256_setzero_si256();
    const std::uint64_t zero =
        sign_bits(_mm256_cmpeq_epi8(first, none)) | sign_bits(_mm256_cmpeq_epi8(last, none)) << 32;
    store_le(maps.nonzero + at / 8, ~zero);
    store_le(maps.negative + at / 8, sign_bits(first) | sign_bits(last) << 32);
  }
}

bool read_dense(const Stream& stream, std::uint32_t count, const DigitMaps& maps) noexcept {
  alignas(64) std::uint8_t digits[kChunkElements];
  std::memset(digits, 0, map_bytes(count) * 8);
  ByteSink sink(digits, count);
  if (!read_rest(stream, {}, sink)) return false;
  store_maps(digits, count, maps);
  return true;
}

// Sets digits in a slot, or adds them.
template <bool kAdds>
class SlotSink {
 public:
  explicit SlotSink(const DecodeTarget& target) noexcept
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

// Appends bits to both maps, without a branch: where words end is as good as random.
class MapWriter {
 public:
  explicit MapWriter(const DigitMaps& maps) noexcept : maps_(maps) {}

  // REQUIRES: 0 < count <= 64, and no bits beyond it.
  [[gnu::always_inline]] void add(std::uint64_t nonzero, std::uint64_t negative,
                                  std::uint32_t count) noexcept {
    nonzero_ |= nonzero << filled_;
    negative_ |= negative << filled_;
    store();
    const std::uint32_t taken = filled_;
    filled_ += count;
    const bool full = filled_ >= kWord;
    nonzero_ = full ? nonzero >> 1 >> (kWord - 1 - taken) : nonzero_;
    negative_ = full ? negative >> 1 >> (kWord - 1 - taken) : negative_;
    bytes_ += full ? 8 : 0;
    filled_ %= kWord;
  }

  [[gnu::always_inline]] void store() const noexcept {
    store_le(maps_.nonzero + bytes_, nonzero_);
    store_le(maps_.negative + bytes_, negative_);
  }

 private:
  DigitMaps maps_;
  std::uint32_t bytes_ = 0;
  std::uint32_t filled_ = 0;  // < 64 between calls
  std::uint64_t nonzero_ = 0;
  std::uint64_t negative_ = 0;
};

// Which bits of a word are signs, where codes are of one bit, 1 for a zero, or of two, 0 and a sign. A 0
// makes a sign of the bit after it unless it is one itself, as a backslash escapes the character after it:
// Langdale and Lemire, "Parsing gigabytes of JSON per second" (VLDB Journal 2019), section 3.1.1. `carry`:
// whether the first bit is a sign; then, of the next word.
[[gnu::always_inline]] inline std::uint64_t find_signs(std::uint64_t bits, std::uint64_t& carry) noexcept {
  constexpr std::uint64_t kEven = 0x5555555555555555;
  const std::uint64_t zeros = ~bits & ~carry;
  const std::uint64_t after_zero = zeros << 1 | carry;
  const std::uint64_t odd_starts = zeros & ~kEven & ~after_zero;
  const std::uint64_t runs = odd_starts + zeros;
  carry = runs < zeros ? 1 : 0;
  return (kEven ^ runs << 1) & after_zero;
}

// Parameter 0, 64 bits at a time, up to where single codes must be looked at: an escape, or the last of all.
Place read_digits(const Stream& stream, std::uint32_t count, const DigitMaps& maps) noexcept {
  Place place;
  LongRuns runs;
  MapWriter writer(maps);
  std::uint64_t carry = 0;
  std::uint64_t zeros = 0;  // of the last word: the codes of one bit
  while (place.bit + kWord <= stream.bits) {
    const auto bits = load_le<std::uint64_t>(stream.bytes + place.bit / 8);
    const std::uint64_t next = std::uint64_t{static_cast<std::uint8_t>(stream.bytes[place.bit / 8 + 8])}
                               << 63;
    std::uint64_t after = carry;
    const std::uint64_t signs = find_signs(bits, after);
    const std::uint64_t starts = ~bits & ~signs;
    const std::uint32_t digits = popcount(starts);
    const std::uint32_t elements = kWord - popcount(signs);
    if (place.digits + digits >= stream.nonzeros || elements > count - place.next) break;
    if (runs.end_in(bits)) break;
    writer.add(_pext_u64(starts, ~signs), _pext_u64(starts & (bits >> 1 | next), ~signs), elements);
    carry = after;
    zeros = bits & ~signs;
    place = {place.bit + kWord, place.next + elements, place.digits + digits};
  }
  writer.store();
  // Back to the end of the last sign: the zeros after it may be the beginning of an escape.
  const unsigned back = kWord - bit_width(~zeros);
  return {place.bit + static_cast<std::uint32_t>(carry) - back, place.next - back, place.digits};
}

}  // namespace

bool read_rice(const ChunkBytes& rice, std::uint32_t count, const DigitMaps& maps) {
  Stream stream;
  if (!open(rice, count, stream)) return false;
  if (stream.parameter > 0 && stream.nonzeros > count / 16) return read_dense(stream, count, maps);
  const std::uint32_t bytes = map_bytes(count);
  std::memset(maps.nonzero, 0, bytes);
  std::memset(maps.negative, 0, bytes);
  const Place place = stream.parameter == 0 ? read_digits(stream, count, maps) : Place{};
  MapSink sink(maps, place.next, count);
  return read_rest(stream, place, sink) && sink.finish();
}

bool scatter_rice(const ChunkBytes& rice, const DecodeTarget& target) {
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

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
