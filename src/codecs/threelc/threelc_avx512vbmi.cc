// The table for AVX-512 with VBMI and VBMI2. Zero runs are coded 64 packed bytes at a time: codes are made in
// place of the zero bytes, and what is left over is squeezed out.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "codecs/threelc/threelc_avx512.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_vectors_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kBlock = 64;

__mmask64 first_bytes(std::uint32_t bytes) noexcept {
  return ~std::uint64_t{0} >> (kBlock - bytes);
}

struct Coded {
  __m512i bytes;
  std::uint64_t kept;  // of them
};

// Codes the runs of a block whose bytes of `zeros` are zero bytes: each run's code stands at its first byte,
// and at every 14th after.
Coded code_runs(__m512i block, std::uint64_t zeros) noexcept {
  const __m512i one = _mm512_set1_epi8(1);
  std::uint64_t starts = zeros & ~(zeros << 1);
  std::uint64_t longer = zeros & zeros >> 1;  // where at least two follow one another, then three, and so on
  block =
      _mm512_mask_add_epi8(block, longer, block,
                           _mm512_set1_epi8(static_cast<char>(kFirstRun - static_cast<unsigned>(kZeroByte))));
  for (unsigned run = 2; longer != 0 && run < kLongestRun; ++run) {
    longer &= zeros >> run;
    block = _mm512_mask_add_epi8(block, longer, block, one);
  }
  for (std::uint64_t next = starts & longer; next != 0; next = (next << kLongestRun) & zeros & longer) {
    starts |= (next << kLongestRun) & zeros;
  }
  return {block, ~zeros | starts};
}

}  // namespace

std::uint32_t zero_runs(const std::byte* packed, std::uint32_t bytes, std::byte* out) {
  const __m512i zero_byte = _mm512_set1_epi8(static_cast<char>(kZeroByte));
  std::byte* to = out;
  std::uint32_t run = 0;  // zero bytes before `at`, not written yet
  for (std::uint32_t at = 0; at < bytes; at += kBlock) {
    const std::uint32_t left = bytes - at;
    const __mmask64 inside = first_bytes(left < kBlock ? left : kBlock);
    const __m512i block = _mm512_maskz_loadu_epi8(inside, packed + at);
    const std::uint64_t zeros = _mm512_mask_cmpeq_epi8_mask(inside, block, zero_byte);
    if (zeros == inside) {
      run += left < kBlock ? left : kBlock;
      continue;
    }
    const unsigned first = countr_one(zeros);
    const unsigned end = bit_width(inside & ~zeros);
    to = write_run(to, run + first);
    run = bit_width(inside) - end;
    const std::uint64_t between = ~std::uint64_t{0} << first & first_bytes(end);
    const Coded coded = code_runs(block, zeros & between);
    const std::uint64_t kept = coded.kept & between;
    const std::uint32_t count = popcount(kept);
    _mm512_mask_storeu_epi8(to, first_bytes(count), _mm512_maskz_compress_epi8(kept, coded.bytes));
    to += count;
  }
  return static_cast<std::uint32_t>(write_run(to, run) - out);
}

extern constexpr Kernels kKernels = {largest, quantize, zero_runs, rice, decode_chunk};

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
