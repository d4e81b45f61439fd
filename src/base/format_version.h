// Versions of formats (docs/reference/format.md, "What may never change"): each magic number has one of its own beside
// it.
#pragma once

#include <cstdint>
#include <string_view>

#include "deltawire/result.h"

namespace deltawire {

// kUnsupportedVersion unless `found`, which stands in the bytes of `what`, is `read`, the version that this
// build reads. The message names both, and says which deltawire reads these bytes.
Status check_format_version(std::string_view what, std::uint64_t found, std::uint64_t read);

}  // namespace deltawire
