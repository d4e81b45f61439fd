// Encoding for AVX-512 (F, BW, DQ, VL).
#include "codecs/gcomp/gcomp_words_avx512.h"
// The words above are what it is made of.
#include "codecs/gcomp/gcomp_encode_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

extern constexpr Kernels kKernels = {histogram, encode_block, store_values, decode_block, decode_stored};

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
