// Decoding for AVX-512 with VBMI and VBMI2.
#include "codecs/gcomp/gcomp_lanes_avx512vbmi.h"
// The lanes above are what it is made of.
#include "codecs/gcomp/gcomp_decode_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

Fault decode_block(const BlockBytes& body, const DecodeTable& table, const Target& target) {
  return decode_any_block(body, table, target);
}

void decode_stored(const std::byte* payload, const Target& target) {
  decode_any_stored(payload, target);
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
