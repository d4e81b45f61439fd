// int8: 255 evenly spaced values, one byte for each element. spec.md in this folder defines the bytes.
#pragma once

#include <memory>

#include "codecs/spec_string.h"
#include "deltawire/codec.h"

namespace deltawire {

extern const CodecInfo kInt8Info;

// Makes the codec; `spec` has been checked for unknown parameters. It has none.
Result<std::unique_ptr<const Codec>> make_int8(const ParsedSpec& spec);

}  // namespace deltawire
