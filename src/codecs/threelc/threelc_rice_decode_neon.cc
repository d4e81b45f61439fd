// Positions and signs in Rice codes, by words of 64 bits: it needs no instruction of NEON's.
#include <cstddef>
#include <cstdint>

#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_rice_read_ops.h"
#include "codecs/threelc/threelc_unpack_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

bool read_rice(const ChunkBytes& rice, std::uint32_t count, const DigitMaps& maps) {
  return read_rice_by<ByteReader<0>>(rice, count, maps);
}

bool scatter_rice(const ChunkBytes& rice, const DecodeTarget& target) {
  return scatter_rice_into(rice, target);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
