// Zero runs, 32 packed bytes at a time.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_runs_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

struct Block {
  static constexpr std::uint32_t kBytes = 32;

  static Block load(const std::byte* from) noexcept {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
  }

  void store(std::byte* to) const noexcept { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes); }
  std::uint64_t equal(std::byte byte) const noexcept {
    const __m256i same = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(static_cast<char>(byte)));
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(same));
  }

  __m256i bytes;
};

}  // namespace

std::uint32_t zero_runs(const std::byte* packed, std::uint32_t bytes, std::byte* out) {
  return zero_runs_by<Block>(packed, bytes, out);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
