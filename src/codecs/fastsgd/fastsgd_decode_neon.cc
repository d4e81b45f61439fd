#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/fastsgd/fastsgd_tiles_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

Decoded decode_row(const ChunkRow& row, const DecodeRules& rules, DecodeTarget& target) {
  return decode_in_tiles(row, rules, target);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
