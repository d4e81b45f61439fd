// Zero runs, 32 packed bytes at a time.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_runs_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kBlock = 32;

__m256i load_block(const std::byte* at) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

void store_block(std::byte* at, __m256i block) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), block);
}

// The bytes [begin, end) of a block, which neither begins nor ends with a zero byte; `zeros` are those
// between. Writes at most a block past what it returns.
std::byte* write_between(const std::byte* block, std::uint64_t zeros, unsigned begin, unsigned end,
                         std::byte* out) noexcept {
  for (std::uint64_t pairs = zeros & zeros >> 1; pairs != 0;) {  // runs of one stay as they are
    const unsigned run_at = countr_zero(pairs);
    const unsigned run = countr_one(zeros >> run_at);
    store_block(out, load_block(block + begin));
    out = write_run(out + (run_at - begin), run);
    begin = run_at + run;
    pairs &= ~std::uint64_t{0} << begin;
  }
  store_block(out, load_block(block + begin));
  return out + (end - begin);
}

}  // namespace

std::uint32_t zero_runs(const std::byte* packed, std::uint32_t bytes, std::byte* out) {
  const __m256i zero_byte = _mm256_set1_epi8(static_cast<char>(kZeroByte));
  std::byte* to = out;
  std::uint32_t run = 0;  // zero bytes before `at`, not written yet
  std::uint32_t at = 0;
  // A block is read and written from anywhere inside the one before.
  for (; at + 2 * kBlock <= bytes; at += kBlock) {
    const __m256i block = load_block(packed + at);
    const auto zeros = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(block, zero_byte)));
    if (zeros == ~0U) {
      run += kBlock;
      continue;
    }
    const unsigned first = countr_one(zeros);
    const unsigned end = bit_width(~zeros);
    to = write_run(to, run + first);
    const std::uint32_t between = ~0U << first & ~0U >> (kBlock - end);
    to = write_between(packed + at, zeros & between, first, end, to);
    run = kBlock - end;
  }
  to = write_full_runs(to, run);
  const std::uint32_t rest = bytes - at + run % kLongestRun;
  to += kernels_for(TargetId::kReference).zero_runs(packed + bytes - rest, rest, to);
  return static_cast<std::uint32_t>(to - out);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
