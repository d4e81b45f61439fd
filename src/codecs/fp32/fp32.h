// fp32: the values themselves, lossless. spec.md in this folder defines the bytes.
#pragma once

#include <memory>

#include "codecs/spec_string.h"
#include "deltawire/codec.h"

namespace deltawire {

extern const CodecInfo kFp32Info;

// Makes the codec; `spec` has been checked for unknown parameters. It has none.
Result<std::unique_ptr<const Codec>> make_fp32(const ParsedSpec& spec);

}  // namespace deltawire
