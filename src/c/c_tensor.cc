#include "c_tensor.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "call.h"

namespace deltawire::c {
namespace {

constexpr std::uint64_t kElementsMax = std::numeric_limits<std::uint32_t>::max();

static_assert(DELTAWIRE_F32 == static_cast<int>(DType::kF32) &&
              DELTAWIRE_BF16 == static_cast<int>(DType::kBF16) &&
              DELTAWIRE_F16 == static_cast<int>(DType::kF16));

Status check_dims(const deltawire_tensor& tensor) {
  if (tensor.dim_count == 0) return {};
  if (tensor.dims == nullptr) return null_argument("dims");
  std::uint64_t product = 1;
  for (const std::uint64_t dim : std::span(tensor.dims, tensor.dim_count)) {
    const bool fits = dim == 0 || product <= kElementsMax / dim;
    product = fits ? product * dim : kElementsMax + 1;  // that is no count
    if (!fits) break;
  }
  if (product == tensor.count) return {};
  return fail(ErrorCode::kInvalidArgument,
              "the product of dims is not the count, " + std::to_string(tensor.count));
}

}  // namespace

Result<TensorSlot> slot_of(const deltawire_tensor* tensor) {
  if (tensor == nullptr) return forward_error(null_argument("the tensor"));
  if (std::ranges::any_of(tensor->reserved, [](std::uint64_t field) { return field != 0; })) {
    return fail(ErrorCode::kInvalidArgument,
                "reserved is not 0; set the whole struct to 0 before you fill it");
  }
  const auto dtype = static_cast<DType>(tensor->dtype);
  if (tensor->dtype < DELTAWIRE_F32 || tensor->dtype > DELTAWIRE_F16) {
    return fail(ErrorCode::kUnsupportedDType, "dtype is " + std::to_string(tensor->dtype) +
                                                  "; it can be DELTAWIRE_F32, DELTAWIRE_BF16, DELTAWIRE_F16");
  }
  if (tensor->count > kElementsMax) {
    return fail(ErrorCode::kLimit,
                "a tensor of " + std::to_string(tensor->count) + " elements; it can have at most 2^32 - 1");
  }
  if (tensor->values == nullptr && tensor->count != 0) return forward_error(null_argument("values"));
  if (Status dims = check_dims(*tensor); !dims) return forward_error(dims);
  TensorSlot slot{tensor->values, tensor->count, dtype};
  slot.significance = tensor->significance;
  slot.dims = std::span(tensor->dims, tensor->dim_count);
  return slot;
}

Result<std::vector<Named>> named_tensors(const deltawire_tensor* tensors, std::uint32_t count) {
  if (tensors == nullptr && count != 0) return forward_error(null_argument("tensors"));
  std::vector<Named> list;
  list.reserve(count);
  for (const deltawire_tensor& tensor : std::span(tensors, count)) {
    const std::string place = "tensors[" + std::to_string(list.size()) + "]";
    if (tensor.name == nullptr) return forward_error(null_argument(place + ".name"));
    const Result<TensorSlot> slot = slot_of(&tensor);
    if (!slot) {
      return fail(slot.error().code, place + ", \"" + tensor.name + "\": " + slot.error().message);
    }
    list.push_back({tensor.name, *slot, 0});
  }
  return list;
}

Result<bool> accumulates(std::int32_t into) {
  if (into == DELTAWIRE_OVERWRITE || into == DELTAWIRE_ACCUMULATE) return into == DELTAWIRE_ACCUMULATE;
  return fail(ErrorCode::kInvalidArgument,
              "into is " + std::to_string(into) + "; it can be DELTAWIRE_OVERWRITE or DELTAWIRE_ACCUMULATE");
}

Result<Bytes> bytes_at(const void* data, std::uint64_t count, std::string_view argument) {
  if (data == nullptr && count != 0) return forward_error(null_argument(argument));
  return Bytes(static_cast<const std::byte*>(data), count);
}

}  // namespace deltawire::c
