// What vector kernels write streams with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

inline constexpr unsigned kMostKeyBits = 31;  // a mask of 32 is no number of 32 bits plus 1

// From pair `begin` on.
[[gnu::always_inline]] inline ChunkPairs rest_of(const ChunkPairs& chunk, std::uint32_t begin) noexcept {
  return {chunk.keys + begin, chunk.codes + begin, chunk.pairs - begin, chunk.range};
}

// Appends words of up to 64 bits. A store always takes 8 bytes, as an Appender's.
class WordAppender {
 public:
  [[gnu::always_inline]] explicit WordAppender(std::byte* out) noexcept : out_(out) {}

  // `kIsShort`: of no more than 56 bits.
  template <bool kIsShort>
  [[gnu::always_inline]] void put(std::uint64_t word, unsigned bits) noexcept {
    const std::uint64_t joined = pending_ | word << filled_;
    store_le(out_, joined);
    const unsigned all = filled_ + bits;
    if constexpr (kIsShort) {
      pending_ = joined >> all / 8 * 8;
      out_ += all / 8;
      filled_ = all % 8;
    } else {
      const std::uint64_t rest = word >> 1 >> (63 - filled_);  // behind the 64 bits that are stored, or 0
      const std::uint64_t words = all / 64;
      pending_ = (joined & (words - 1)) | rest;  // without a branch: it would be foretold wrong
      out_ += 8 * words;
      filled_ = all % 64;
    }
  }

  // The address behind the last bit, whose byte is filled with zero bits.
  [[gnu::always_inline]] std::byte* finish() noexcept {
    store_le(out_, pending_);
    return out_ + (filled_ + 7) / 8;
  }

 private:
  std::byte* out_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
};

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
