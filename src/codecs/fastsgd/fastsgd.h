// fastsgd: logarithmic value codes, a threshold and delta keys for sparse gradients, after K. Yang, L. Chen,
// Z. Zeng, Y. Gao, "FastSGD: A Fast Compressed SGD Framework for Distributed Machine Learning"
// (arXiv 2112.04291), section 3. spec.md in this folder defines the bytes.
#pragma once

#include <memory>

#include "codecs/spec_string.h"
#include "deltawire/codec.h"

namespace deltawire {

extern const CodecInfo kFastsgdInfo;

// Makes the codec from its parameters `b`, `tau`, `keep`, `l` and `residual`; `spec` has been checked for
// unknown ones. Errors: kInvalidArgument for a value out of range.
Result<std::unique_ptr<const Codec>> make_fastsgd(const ParsedSpec& spec);

}  // namespace deltawire
