// The codes of zero runs, and how vector kernels find them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc {

// The codes of as many runs of 14 as there are in a run; returns where the code of the rest goes.
[[gnu::always_inline]] inline std::byte* write_full_runs(std::byte* out, std::uint32_t run) noexcept {
  const std::uint32_t full = run / kLongestRun;
  if (full > 0) std::memset(out, 0xFF, full);
  return out + full;
}

[[gnu::always_inline]] inline std::byte* write_run(std::byte* out, std::uint32_t run) noexcept {
  if (run >= kLongestRun) out = write_full_runs(out, run);
  const std::uint32_t rest = run % kLongestRun;
  if (rest == 0) return out;
  *out = rest == 1 ? kZeroByte : static_cast<std::byte>(kFirstRun + rest - 2);
  return out + 1;
}

// The bytes [begin, end) of a block, which neither begins nor ends with a zero byte; `zeros` are those
// between. Writes at most a block past what it returns.
template <class Block>
[[gnu::always_inline]] inline std::byte* write_between(const std::byte* block, std::uint64_t zeros,
                                                       unsigned begin, unsigned end,
                                                       std::byte* out) noexcept {
  for (std::uint64_t pairs = zeros & zeros >> 1; pairs != 0;) {  // runs of one stay as they are
    const unsigned run_at = countr_zero(pairs);
    const unsigned run = countr_one(zeros >> run_at);
    Block::load(block + begin).store(out);
    out = write_run(out + (run_at - begin), run);
    begin = run_at + run;
    pairs &= ~std::uint64_t{0} << begin;
  }
  Block::load(block + begin).store(out);
  return out + (end - begin);
}

// Kernels::zero_runs. Block: kBytes, at most 64; load(from); of a block store(to), and equal(byte), which
// says for which bytes that is so.
template <class Block>
[[gnu::always_inline]] inline std::uint32_t zero_runs_by(const std::byte* packed, std::uint32_t bytes,
                                                         std::byte* out) noexcept {
  constexpr std::uint32_t kBytes = Block::kBytes;
  constexpr std::uint64_t kAll = ~std::uint64_t{0} >> (64 - kBytes);
  std::byte* to = out;
  std::uint32_t run = 0;  // zero bytes before `at`, not written yet
  std::uint32_t at = 0;
  // A block is read and written from anywhere inside the one before.
  for (; at + 2 * kBytes <= bytes; at += kBytes) {
    const std::uint64_t zeros = Block::load(packed + at).equal(kZeroByte);
    if (zeros == kAll) {
      run += kBytes;
      continue;
    }
    const unsigned first = countr_one(zeros);
    const unsigned end = bit_width(~zeros & kAll);
    to = write_run(to, run + first);
    const std::uint64_t between = kAll << first & kAll >> (kBytes - end);
    to = write_between<Block>(packed + at, zeros & between, first, end, to);
    run = kBytes - end;
  }
  to = write_full_runs(to, run);
  const std::uint32_t rest = bytes - at + run % kLongestRun;
  to += kernels_for(TargetId::kReference).zero_runs(packed + bytes - rest, rest, to);
  return static_cast<std::uint32_t>(to - out);
}

}  // namespace deltawire::threelc
