// gcomp: exponents by a length-limited Huffman code, mantissas cut by what the optimizer can still see, after
// X. Li, C. Guo, K. Qian, M. Zhang, M. Yang, M. Xu, "Near-Lossless Gradient Compression for Data-Parallel
// Distributed DNN Training" (SoCC 2024), sections 4 to 6.1. spec.md in this folder defines the bytes.
#pragma once

#include <memory>

#include "codecs/spec_string.h"
#include "deltawire/codec.h"

namespace deltawire {

extern const CodecInfo kGcompInfo;

// Makes the codec from its parameters `cut` and `lossless`; `spec` has been checked for unknown ones.
// Errors: kInvalidArgument for another word, or for lossless=on together with a cut other than 0.
Result<std::unique_ptr<const Codec>> make_gcomp(const ParsedSpec& spec);

}  // namespace deltawire
