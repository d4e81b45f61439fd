// The head of a .dw file, as written and as read (docs/reference/format.md, "Files").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/file.h"

namespace deltawire {

inline constexpr std::uint64_t kMaxFileDimensions = 8;

// Elements of a tensor of this shape. Errors: kLimit for 2^32 or more.
Result<std::uint64_t> file_elements(std::span<const std::uint64_t> shape);

std::vector<std::byte> file_header_bytes(const FileHeader& header);

}  // namespace deltawire
