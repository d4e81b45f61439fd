// sbc: sparse binary compression, after F. Sattler, S. Wiedemann, K.-R. Mueller, W. Samek, "Sparse Binary
// Compression: Towards Distributed Deep Learning with minimal Communication" (IJCNN 2019), algorithms 2 to 4:
// the largest values of one sign, sent as their positions and one mean. spec.md in this folder defines the
// bytes.
#pragma once

#include <memory>

#include "codecs/spec_string.h"
#include "deltawire/codec.h"

namespace deltawire {

extern const CodecInfo kSbcInfo;

// Makes the codec from its parameter `p`; `spec` has been checked for unknown ones.
// Errors: kInvalidArgument for a value out of range.
Result<std::unique_ptr<const Codec>> make_sbc(const ParsedSpec& spec);

}  // namespace deltawire
