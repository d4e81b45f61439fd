// The error for a name that no codec has, with what its author may have meant.
#pragma once

#include <span>
#include <string_view>

#include "deltawire/codec.h"
#include "deltawire/result.h"

namespace deltawire {

// kUnknownCodec. The message says that the name is an exchange pattern, or which codec it resembles (another
// case, a typing error, more letters around it, as in "fp16_compress"), or else lists the known ones.
tl::unexpected<Error> unknown_codec(std::string_view name, std::span<const CodecInfo* const> known);

}  // namespace deltawire
