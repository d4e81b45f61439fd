// Expansion of zero runs, a block of codes at a time, for vector kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc {

// Block: kBytes, at most 64; load(from); copies of one byte, all(byte); and of a block: store(to),
// equal(byte) and at_least(byte), which say for which bytes that is so.
template <class Block>
class Expansion {
 public:
  [[gnu::always_inline]] Expansion(std::byte* out, std::uint32_t bytes) noexcept
      : at_(out), end_(out + bytes) {}

  // The first `count` codes of a block, behind which another block may be read. False if there are too many,
  // or a run is split.
  [[gnu::always_inline]] bool add(const std::byte* codes, std::uint32_t count) noexcept {
    const Block block = Block::load(codes);
    const std::uint64_t inside = ~std::uint64_t{0} >> (64 - count);
    const std::uint64_t runs = block.at_least(static_cast<std::byte>(kFirstRun)) & inside;
    const std::uint64_t zeros = (block.equal(kZeroByte) & inside) | runs;
    const std::uint64_t shorter = zeros & ~block.equal(std::byte{0xFF});
    if (((shorter << 1 | after_shorter_) & zeros) != 0) return false;
    after_shorter_ = shorter >> (count - 1) & 1;
    return copy(codes, count, runs);
  }

  [[gnu::always_inline]] bool done() const noexcept { return at_ == end_; }

 private:
  [[gnu::always_inline]] bool copy(const std::byte* codes, std::uint32_t count, std::uint64_t runs) noexcept {
    std::uint32_t begin = 0;
    for (; runs != 0; runs &= runs - 1) {
      const unsigned run_at = countr_zero(runs);
      Block::load(codes + begin).store(at_);
      at_ += run_at - begin;
      if (at_ > end_) return false;
      Block::all(kZeroByte).store(at_);  // the longest run is shorter than a block
      at_ += static_cast<std::uint32_t>(codes[run_at]) - kFirstRun + 2;
      if (at_ > end_) return false;
      begin = run_at + 1;
    }
    Block::load(codes + begin).store(at_);
    at_ += count - begin;
    return at_ <= end_;
  }

  std::byte* at_;
  std::byte* end_;
  std::uint64_t after_shorter_ = 0;  // 1: the code before stands for a run of fewer than 14
};

// Kernel expand_runs. Writes less than a block behind the packed bytes and the longest run.
template <class Block>
[[gnu::always_inline]] inline bool expand_by(const ChunkBytes& codes, std::byte* packed,
                                             std::uint32_t bytes) noexcept {
  constexpr std::uint32_t kBytes = Block::kBytes;
  Expansion<Block> expansion(packed, bytes);
  std::uint32_t at = 0;
  for (; at + 2 * kBytes <= codes.bytes; at += kBytes) {
    if (!expansion.add(codes.at + at, kBytes)) return false;
  }
  std::byte rest[3 * kBytes] = {};
  const std::uint32_t left = codes.bytes - at;
  if (left > 0) std::memcpy(rest, codes.at + at, left);
  for (std::uint32_t done = 0; done < left; done += kBytes) {
    const std::uint32_t count = left - done < kBytes ? left - done : kBytes;
    if (!expansion.add(rest + done, count)) return false;
  }
  return expansion.done();
}

}  // namespace deltawire::threelc
