// Expansion of zero runs, 64 codes at a time.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "codecs/threelc/threelc_expand_ops.h"
#include "codecs/threelc/threelc_unpack_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

struct Block {
  static constexpr std::uint32_t kBytes = 64;

  static Block load(const std::byte* from) noexcept { return {_mm512_loadu_si512(from)}; }
  static Block all(std::byte byte) noexcept { return {_mm512_set1_epi8(static_cast<char>(byte))}; }

  void store(std::byte* to) const noexcept { _mm512_storeu_si512(to, bytes); }
  std::uint64_t equal(std::byte byte) const noexcept {
    return _mm512_cmpeq_epi8_mask(bytes, all(byte).bytes);
  }
  std::uint64_t at_least(std::byte byte) const noexcept {
    return _mm512_cmpge_epu8_mask(bytes, all(byte).bytes);
  }

  __m512i bytes;
};

}  // namespace

bool expand_runs(const ChunkBytes& codes, std::byte* packed, std::uint32_t bytes) {
  return expand_by<Block>(codes, packed, bytes);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
