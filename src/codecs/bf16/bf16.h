// bf16: the upper 16 bits of each value, rounded to nearest even. spec.md in this folder defines the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "codecs/spec_string.h"
#include "deltawire/codec.h"

namespace deltawire {

extern const CodecInfo kBf16Info;

// Makes the codec; `spec` has been checked for unknown parameters. It has none.
Result<std::unique_ptr<const Codec>> make_bf16(const ParsedSpec& spec);

}  // namespace deltawire
