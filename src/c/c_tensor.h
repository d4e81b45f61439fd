// Checks tensors of the C interface, and converts them to the library's types.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/deltawire.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire::c {

// Views the caller's memory. Errors: kInvalidArgument, kUnsupportedDType, kLimit; they name the field and its
// valid values.
Result<TensorSlot> slot_of(const deltawire_tensor* tensor);

// The same for `count` tensors with names. An error's message names the tensor.
Result<std::vector<Named>> named_tensors(const deltawire_tensor* tensors, std::uint32_t count);

// kInvalidArgument for an undefined number.
Result<bool> accumulates(std::int32_t into);

// Bytes; NULL is allowed if there are none.
Result<Bytes> bytes_at(const void* data, std::uint64_t count, std::string_view argument);

}  // namespace deltawire::c
