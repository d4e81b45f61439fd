// 3lc: 3-value quantization with error feedback, after H. Lim, D. G. Andersen, M. Kaminsky, "3LC:
// Lightweight and Effective Traffic Compression for Distributed Machine Learning" (MLSys 2019), section 3;
// sparse chunks may instead list their positions. spec.md in this folder defines the bytes.
#pragma once

#include <memory>

#include "codecs/spec_string.h"
#include "deltawire/codec.h"

namespace deltawire {

extern const CodecInfo kThreelcInfo;

// Makes the codec from its parameters `s`, `mode` and `runs`; `spec` has been checked for unknown ones.
// Errors: kInvalidArgument for a value out of range.
Result<std::unique_ptr<const Codec>> make_threelc(const ParsedSpec& spec);

}  // namespace deltawire
