// Positions and signs in Rice codes.
#include <cstddef>
#include <cstdint>

#include <arm_neon.h>

#include "codecs/threelc/threelc_block_neon.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_rice_read_ops.h"
#include "codecs/threelc/threelc_unpack_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

struct Words {
  [[gnu::always_inline]] static MapWord of(const std::uint8_t* digits) noexcept {
    const Block block = Block::load(reinterpret_cast<const std::byte*>(digits));
    return {~block.equal(std::byte{0}), block.at_least(std::byte{kNegativeDigit})};
  }
};

}  // namespace

bool read_rice(const ChunkBytes& rice, std::uint32_t count, const DigitMaps& maps) {
  return read_rice_by<ByteReader<0, Words>, Words>(rice, count, maps);
}

bool scatter_rice(const ChunkBytes& rice, const DecodeTarget& target) {
  return scatter_rice_into(rice, target);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
