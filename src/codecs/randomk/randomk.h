// randomk: as many elements as a share says, drawn by chance, with error feedback or scaled without bias.
// Bytes: spec.md.
#pragma once

#include <memory>

#include "codecs/spec_string.h"
#include "deltawire/codec.h"

namespace deltawire {

extern const CodecInfo kRandomkInfo;

// Errors: kInvalidArgument for a parameter out of range.
Result<std::unique_ptr<const Codec>> make_randomk(const ParsedSpec& spec);

}  // namespace deltawire
