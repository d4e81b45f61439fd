// Tensors of the C interface, checked, as the rest of the library knows them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/deltawire.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire::c {

// Views the caller's memory. kInvalidArgument, kUnsupportedDType, kLimit: says which field and what it may
// be.
Result<TensorSlot> slot_of(const deltawire_tensor* tensor);

// Of `count` tensors with names. The message of an error names the tensor.
Result<std::vector<Named>> named_tensors(const deltawire_tensor* tensors, std::uint32_t count);

// kInvalidArgument for a number that is none.
Result<bool> accumulates(std::int32_t into);

// Bytes that may be NULL where there are none.
Result<Bytes> bytes_at(const void* data, std::uint64_t count, std::string_view argument);

}  // namespace deltawire::c
