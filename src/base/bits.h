// Bit streams, least significant bit first: bit i of the stream is bit i % 8 of byte i / 8.
//
// The writer is bounded by its span and the reader by its bytes: neither ever touches memory outside, and
// both turn sticky-bad instead (`overflowed`, `exhausted`), so a kernel checks once at the end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/little_endian.h"

namespace deltawire {

class BitWriter {
 public:
  explicit BitWriter(std::span<std::byte> out) noexcept : out_(out) {}

  // Appends the low `bits` bits of `value`. REQUIRES: bits <= 56 and value < 2^bits.
  void put(std::uint64_t value, unsigned bits) noexcept {
    pending_ |= value << filled_;
    filled_ += bits;
    while (filled_ >= 8) {
      push(static_cast<std::byte>(pending_ & 0xFF));
      pending_ >>= 8;
      filled_ -= 8;
    }
  }

  // Pads the last byte with zero bits; returns the bytes written. Nothing may be put afterwards.
  std::uint64_t finish() noexcept {
    if (filled_ > 0) push(static_cast<std::byte>(pending_ & 0xFF));
    filled_ = 0;
    pending_ = 0;
    return at_;
  }

  bool overflowed() const noexcept { return overflowed_; }

 private:
  void push(std::byte value) noexcept {
    if (at_ < out_.size()) {
      out_[at_++] = value;
    } else {
      overflowed_ = true;
    }
  }

  std::span<std::byte> out_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
  std::uint64_t at_ = 0;
  bool overflowed_ = false;
};

class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> in) noexcept : in_(in), bits_(in.size() * 8) {}

  // The next `bits` bits, and on past them. REQUIRES: bits <= 56. Past the end: 0, and exhausted().
  std::uint64_t get(unsigned bits) noexcept {
    if (bits > bits_ - at_) {
      exhausted_ = true;
      at_ = bits_;
      return 0;
    }
    const std::uint64_t value = window() & ((std::uint64_t{1} << bits) - 1);
    at_ += bits;
    return value;
  }

  // Counts the 1 bits before the next 0 bit, but at most `cap`; consumes them and, below the cap, the 0.
  // REQUIRES: cap <= 55.
  unsigned get_unary(unsigned cap) noexcept {
    const auto ones = static_cast<unsigned>(std::countr_one(window()));
    const unsigned run = ones < cap ? ones : cap;
    const unsigned used = run < cap ? run + 1 : run;
    if (used > bits_ - at_) {
      exhausted_ = true;
      at_ = bits_;
      return 0;
    }
    at_ += used;
    return run;
  }

  bool exhausted() const noexcept { return exhausted_; }

  // Whether all that is left is less than a byte of zero bits: the only legal end of a stream.
  bool at_clean_end() noexcept {
    if (exhausted_ || bits_ - at_ >= 8) return false;
    return get(static_cast<unsigned>(bits_ - at_)) == 0;
  }

 private:
  // At least 57 bits from the current position (zeros past the end).
  std::uint64_t window() const noexcept {
    const std::uint64_t byte = at_ / 8;
    std::uint64_t word = 0;
    if (in_.size() - byte >= 8) {
      word = load_le<std::uint64_t>(in_.data() + byte);
    } else {
      std::byte tail[8] = {};
      if (byte < in_.size()) std::memcpy(tail, in_.data() + byte, in_.size() - byte);
      word = load_le<std::uint64_t>(tail);
    }
    return word >> (at_ % 8);
  }

  std::span<const std::byte> in_;
  std::uint64_t bits_;
  std::uint64_t at_ = 0;
  bool exhausted_ = false;
};

}  // namespace deltawire
