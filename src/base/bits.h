// Bit streams, least significant bit first: bit i of the stream is bit i % 8 of byte i / 8.
//
// Writer and reader are bounded by the given bytes: neither touches memory outside. Instead, both set a
// sticky error flag (`overflowed`, `exhausted`), so a kernel checks once at the end.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/little_endian.h"

namespace deltawire {

class BitWriter {
 public:
  [[gnu::always_inline]] BitWriter(std::byte* out, std::uint64_t bytes) noexcept : out_(out), bytes_(bytes) {}

  // Appends `value` in so many bits. If eight bytes are left, it always stores eight, the unused ones as
  // zeros, so that no branch depends on how many are full.
  [[gnu::always_inline]] void put(std::uint64_t value, unsigned bits) noexcept {
    assert(bits <= 56 && value >> bits == 0);
    assert(filled_ < 8 && at_ <= bytes_);
    pending_ |= value << filled_;
    filled_ += bits;
    const unsigned whole = filled_ / 8;
    if (bytes_ - at_ >= 8) [[likely]] {
      store_le(out_ + at_, pending_);
      at_ += whole;
    } else {
      for (unsigned i = 0; i < whole; ++i) push(static_cast<std::byte>(pending_ >> 8 * i & 0xFF));
    }
    pending_ >>= whole * 8;
    filled_ %= 8;
  }

  // Pads the last byte with zero bits; returns the bytes written. Nothing may be put afterwards.
  [[gnu::always_inline]] std::uint64_t finish() noexcept {
    if (filled_ > 0) push(static_cast<std::byte>(pending_ & 0xFF));
    filled_ = 0;
    pending_ = 0;
    return at_;
  }

  [[gnu::always_inline]] bool overflowed() const noexcept { return overflowed_; }

 private:
  [[gnu::always_inline]] void push(std::byte value) noexcept {
    if (at_ < bytes_) {
      out_[at_++] = value;
    } else {
      overflowed_ = true;
    }
  }

  std::byte* out_;
  std::uint64_t bytes_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;  // < 8 between calls
  std::uint64_t at_ = 0;
  bool overflowed_ = false;
};

// A view of a stream: its owner moves `position`, also past the end, where all bits are 0.
struct BitWindow {
  const std::byte* at = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t position = 0;

  [[gnu::always_inline]] std::uint64_t bits() const noexcept { return bytes * 8; }
  [[gnu::always_inline]] bool exhausted() const noexcept { return position > bits(); }

  // At least 57 bits from the position on.
  [[gnu::always_inline]] std::uint64_t peek() const noexcept {
    const std::uint64_t byte = position / 8;
    if (bytes >= 8 && byte <= bytes - 8) return load_le<std::uint64_t>(at + byte) >> (position % 8);
    std::byte tail[8] = {};
    if (byte < bytes) std::memcpy(tail, at + byte, bytes - byte);
    return load_le<std::uint64_t>(tail) >> (position % 8);
  }

  // Whether less than a byte is left, and its bits are zero: the only legal end of a stream.
  [[gnu::always_inline]] bool at_clean_end() const noexcept {
    assert(!exhausted());
    return bits() - position < 8 && peek() == 0;
  }
};

class BitReader {
 public:
  [[gnu::always_inline]] BitReader(const std::byte* in, std::uint64_t bytes) noexcept : window_{in, bytes} {}

  // Consumes the next `bits` bits. Past the end: 0, and exhausted().
  [[gnu::always_inline]] std::uint64_t get(unsigned bits) noexcept {
    assert(bits <= 56);
    const std::uint64_t value = window_.peek() & ((std::uint64_t{1} << bits) - 1);
    return take(bits) ? value : 0;
  }

  // Counts the 1 bits before the next 0 bit, but at most `cap`; consumes them and, below the cap, the 0.
  [[gnu::always_inline]] unsigned get_unary(unsigned cap) noexcept {
    assert(cap <= 55);
    const auto ones = countr_one(window_.peek());
    const unsigned run = ones < cap ? ones : cap;
    return take(run < cap ? run + 1 : run) ? run : 0;
  }

  [[gnu::always_inline]] bool exhausted() const noexcept { return exhausted_; }

  [[gnu::always_inline]] bool at_clean_end() const noexcept { return !exhausted_ && window_.at_clean_end(); }

 private:
  [[gnu::always_inline]] bool take(unsigned bits) noexcept {
    assert(!window_.exhausted());
    exhausted_ = exhausted_ || bits > window_.bits() - window_.position;
    window_.position = exhausted_ ? window_.bits() : window_.position + bits;
    return !exhausted_;
  }

  BitWindow window_;
  bool exhausted_ = false;
};

}  // namespace deltawire
