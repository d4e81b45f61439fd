// Expansion of zero runs, 32 codes at a time.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "codecs/threelc/threelc_expand_ops.h"
#include "codecs/threelc/threelc_unpack_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

struct Block {
  static constexpr std::uint32_t kBytes = 32;

  static Block load(const std::byte* from) noexcept {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
  }
  static Block all(std::byte byte) noexcept { return {_mm256_set1_epi8(static_cast<char>(byte))}; }

  void store(std::byte* to) const noexcept { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes); }
  std::uint64_t equal(std::byte byte) const noexcept {
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, all(byte).bytes)));
  }
  std::uint64_t at_least(std::byte byte) const noexcept {
    const Block larger = {_mm256_max_epu8(bytes, all(byte).bytes)};
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(larger.bytes, bytes)));
  }

  __m256i bytes;
};

}  // namespace

bool expand_runs(const ChunkBytes& codes, std::byte* packed, std::uint32_t bytes) {
  return expand_by<Block>(codes, packed, bytes);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
