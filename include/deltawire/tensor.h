// Tensors as deltawire sees them: the caller's memory, an element count and a dtype.
//
// Ownership: never owned here; the caller keeps the memory alive for the length of the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace deltawire {

using Bytes = std::span<const std::byte>;
using MutBytes = std::span<std::byte>;

// Element types; the numbers are on the wire (docs/format.md) and pinned.
enum class DType : std::uint8_t { kF32 = 1, kBF16 = 2, kF16 = 3 };

// "float32", "bfloat16", "float16"; "unknown" for a number outside the enum.
std::string_view dtype_name(DType dtype) noexcept;

// Bytes of one element; 0 for a number outside the enum.
std::uint64_t dtype_bytes(DType dtype) noexcept;

// `count` contiguous elements of `dtype`, in the machine's byte order. Value is `const void` or `void`.
template <class Value>
struct BasicTensor {
  Value* values = nullptr;
  std::uint64_t count = 0;
  DType dtype = DType::kF32;
};
using TensorView = BasicTensor<const void>;
using TensorSlot = BasicTensor<void>;

inline TensorView as_view(const TensorSlot& slot) noexcept {
  return TensorView{slot.values, slot.count, slot.dtype};
}

// A whole tensor (first = 0) or a part of it: elements [first, first + tensor.count) of the tensor
// `name`. Residuals and statistics belong to the pair (name, first).
struct Named {
  std::string_view name;
  TensorSlot tensor;
  std::uint64_t first = 0;
};

}  // namespace deltawire
