// Tensors as deltawire sees them: the caller's memory, an element count and a dtype.
//
// Ownership: they own nothing; the caller keeps the memory alive for the length of the call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/result.h"

namespace deltawire {

using Bytes = std::span<const std::byte>;
using MutBytes = std::span<std::byte>;

// Element types; the numbers are on the wire (docs/reference/format.md) and pinned.
enum class DType : std::uint8_t { kF32 = 1, kBF16 = 2, kF16 = 3 };

// "float32", "bfloat16", "float16"; "unknown" for a number outside the enum.
DELTAWIRE_API std::string_view dtype_name(DType dtype) noexcept;

// Bytes of one element; 0 for a number outside the enum.
DELTAWIRE_API std::uint64_t dtype_bytes(DType dtype) noexcept;

// Dense (dimension 0): `count` contiguous elements of `dtype`, in the machine's byte order.
// Key-value form (dimension > 0): a tensor of `dimension` elements, of which element keys[i] is values[i],
// for `count` keys; all others are zero. Keys grow strictly and are below `dimension`. Value and Key are both
// const (a view) or both mutable (a slot).
template <class Value, class Key>
struct BasicTensor {
  Value* values = nullptr;
  std::uint64_t count = 0;
  DType dtype = DType::kF32;
  Key* keys = nullptr;
  std::uint64_t dimension = 0;

  // How much the optimizer can still see, a number for each of `values`, dense form only: the numerator of
  // GComp's delta (table 2), delta = significance / value, which says how much larger the parameter is than
  // the update that is added to it; optimizer.h computes it. nullptr: not known, so nothing may be cut by it.
  const float* significance = nullptr;

  // The shape, row-major, in the caller's memory; its product is elements(). Empty: one dim. A part that was
  // cut out of a tensor has one dim, a part that is a whole tensor has the tensor's dims.
  std::span<const std::uint64_t> dims = {};

  // The 16-bit dtype of a tensor of which these float32 values are a sum or mean: its range is theirs, too,
  // once they are back in it. A Channel fills it in from Named::summed_dtype.
  DType summed_dtype = DType::kF32;

  bool has_keys() const noexcept { return dimension != 0; }
  DType own_dtype() const noexcept { return summed_dtype != DType::kF32 ? summed_dtype : dtype; }

  // Elements of the tensor, in either form, zeros included.
  std::uint64_t elements() const noexcept { return has_keys() ? dimension : count; }
};
using TensorView = BasicTensor<const void, const std::uint32_t>;
using TensorSlot = BasicTensor<void, std::uint32_t>;

inline TensorView as_view(const TensorSlot& slot) noexcept {
  return TensorView{slot.values,    slot.count,        slot.dtype, slot.keys,
                    slot.dimension, slot.significance, slot.dims};
}

// A whole tensor (first = 0) or a part of it: elements [first, first + tensor.elements()) of the tensor
// `name`. Residuals and statistics belong to the pair (name, first). Keys count from the part's beginning.
struct Named {
  std::string_view name;
  TensorSlot tensor;
  std::uint64_t first = 0;

  // For a part: the numbers of the whole tensor; 0: this is the whole.
  std::uint64_t elements_of_whole = 0;
  std::uint32_t dims_of_whole = 0;

  std::uint64_t name_hash = 0;  // wire/hashes.h, if the caller keeps it from step to step; 0: compute it

  // The tensor's own 16-bit dtype, if `tensor` is a float32 sum or mean of such values.
  DType summed_dtype = DType::kF32;

  // It has no meaning after its step, e.g. a matrix factor: a folding revert drops it.
  bool is_transient = false;

  DType own_dtype() const noexcept { return summed_dtype != DType::kF32 ? summed_dtype : tensor.dtype; }
  std::uint64_t whole_elements() const noexcept {
    return elements_of_whole != 0 ? elements_of_whole : tensor.elements();
  }
  std::uint64_t whole_dims() const noexcept {
    return dims_of_whole != 0 ? dims_of_whole : std::max<std::uint64_t>(1, tensor.dims.size());
  }
};

// kInvalidArgument for two tensors that share memory, of those that will be written: in key-value form they
// are not.
DELTAWIRE_API Status check_apart(std::span<const Named> tensors);

// A key-value tensor that owns its memory: keys grow strictly, keys.size() == values.size().
struct Pairs {
  std::vector<std::uint32_t> keys;
  std::vector<float> values;
  std::uint64_t dimension = 0;
};

}  // namespace deltawire
