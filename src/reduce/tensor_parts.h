// Parts of tensors: the same names, ranges and hashes wherever their values are.
#pragma once

#include <cstdint>

#include "deltawire/tensor.h"

namespace deltawire {

// Elements [first, first + count) of `whole` as a part. `values` is the memory of the whole tensor: the
// caller's, or another copy. A part that is the whole tensor has its dims, others have none.
Named part_of(const Named& whole, std::uint64_t first, std::uint64_t count, void* values);

// The same part in staging memory, where means are float32 whatever the tensor is.
Named staged_part(Named part) noexcept;

// Points the part at another copy of its tensor.
void move_part(Named& part, const Named& whole, void* values) noexcept;

}  // namespace deltawire
