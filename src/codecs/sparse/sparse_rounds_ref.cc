// Reference kernel: leaves all gaps to the loop that checks each of them.
#include <cstdint>

#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

std::uint32_t decode_rounds(Head&, std::uint32_t, const DecodeTarget&, std::uint64_t&) {
  return 0;
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
