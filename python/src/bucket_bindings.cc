#include "bucket_bindings.h"

#include <array>
#include <functional>
#include <numeric>
#include <type_traits>
#include <utility>

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "python_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

// The caller's promise, not a cast of convenience: the address of a tensor comes as a number.
void* at_address(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void check_bytes(const std::string& name, std::uint64_t bytes, std::uint64_t count, DType dtype) {
  if (bytes % dtype_bytes(dtype) == 0 && bytes / dtype_bytes(dtype) == count) return;
  raise({ErrorCode::kInvalidArgument,
         "tensor '" + name + "' has " + std::to_string(bytes) + " bytes, but " + std::to_string(count) +
             " elements of " + std::string(dtype_name(dtype)) + " take " +
             std::to_string(dtype_bytes(dtype) * count) + "; give it that dtype"});
}

template <class Tensor>
Named dense(const Tensor& tensor) {
  const Shape& shape = std::get<3>(tensor);
  TensorSlot slot{at_address(std::get<1>(tensor)), elements_of(shape), DType::kF32};
  slot.dims = shape;
  if constexpr (!std::is_same_v<Tensor, TensorAt>) slot.dtype = dtype_of(std::get<4>(tensor));
  if constexpr (std::is_same_v<Tensor, SignificantTensorAt>) {
    slot.significance = static_cast<const float*>(at_address(std::get<5>(tensor)));
  }
  check_bytes(std::get<0>(tensor), std::get<2>(tensor), slot.count, slot.dtype);
  return {std::get<0>(tensor), slot, 0};
}

template <class Tensor>
std::vector<Named> all_dense(const std::vector<Tensor>& tensors) {
  std::vector<Named> all;
  all.reserve(tensors.size());
  for (const Tensor& tensor : tensors) all.push_back(dense(tensor));
  return all;
}

Named pairs_of(const PairsAt& pairs) {
  TensorSlot slot{at_address(pairs.values), pairs.count, pairs.dtype,
                  static_cast<std::uint32_t*>(at_address(pairs.keys)), elements_of(pairs.shape)};
  slot.dims = pairs.shape;
  return {pairs.name, slot, 0};
}

void make_pairs(PairsAt* self, std::string name, Shape shape, std::uintptr_t keys, std::uintptr_t values,
                std::uint64_t bytes, std::uint64_t count, std::string_view dtype) {
  check_bytes(name, bytes, count, dtype_of(dtype));
  if (elements_of(shape) == 0) {
    raise({ErrorCode::kInvalidArgument, "tensor '" + name + "' has no elements, and so no key-value form"});
  }
  new (self) PairsAt{std::move(name), std::move(shape), keys, values, count, dtype_of(dtype)};
}

template <class Number>
nb::ndarray<nb::numpy, const Number, nb::ndim<1>> view_of(const std::vector<Number>& list, nb::handle owner) {
  return {list.data(), {list.size()}, owner};
}

}  // namespace

std::uint64_t elements_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies{});
}

Revert revert_called(std::string_view name) {
  if (name == "exact") return Revert::kExact;
  if (name == "fold") return Revert::kFold;
  raise(
      {ErrorCode::kInvalidArgument, "revert='" + std::string(name) + "' is unknown; use 'exact' or 'fold'"});
}

DType dtype_of(std::string_view name) {
  constexpr std::array kAll{DType::kF32, DType::kBF16, DType::kF16};
  for (const DType dtype : kAll) {
    if (dtype_name(dtype) == name) return dtype;
  }
  raise({ErrorCode::kUnsupportedDType,
         "dtype '" + std::string(name) + "' is none of float32, bfloat16 and float16"});
}

std::vector<Named> named_all(const std::vector<TensorAt>& tensors) {
  return all_dense(tensors);
}

std::vector<Named> named_all(const std::vector<TypedTensorAt>& tensors) {
  return all_dense(tensors);
}

SubmittedBucket::SubmittedBucket(const Submitted& submitted) {
  tensors_.reserve(submitted.size());
  for (const auto& each : submitted) {
    tensors_.push_back(std::visit(
        [this](const auto& tensor) {
          if constexpr (std::is_same_v<std::decay_t<decltype(tensor)>, PairsAt*>) {
            pairs_.push_back(tensor);
            return pairs_of(*tensor);
          } else {
            return dense(tensor);
          }
        },
        each));
  }
  means_.resize(pairs_.size());
}

void SubmittedBucket::hand_over_means() noexcept {
  for (std::size_t i = 0; i < pairs_.size(); ++i) pairs_[i]->mean = std::move(means_[i]);
}

void bind_buckets(nb::module_& module) {
  module.def(
      "check_apart",
      [](const Submitted& tensors) {
        value_or_raise(check_apart(SubmittedBucket(tensors).bucket().tensors));
      },
      "tensors"_a,
      "Raises InvalidArgumentError for two that share memory, of those that a bucket of them would write.");
  nb::class_<PairsAt>(module, "PairsAt",
                      "A bucket's tensor of which only the elements at some keys are given, by addresses.")
      .def("__init__", &make_pairs, "name"_a, "shape"_a, "keys"_a, "values"_a, "bytes"_a, "count"_a,
           "dtype"_a,
           "shape: of the dense tensor, row-major, with elements; keys: uint32, growing, of its flat "
           "elements; values: as many of dtype (float32, bfloat16, float16), in so many bytes.")
      .def_prop_ro(
          "mean",
          [](nb::handle self) {
            const Pairs& mean = nb::cast<const PairsAt&>(self).mean;
            return nb::make_tuple(view_of(mean.keys, self), view_of(mean.values, self));
          },
          "Keys (uint32, growing) and values (float32) of the mean, read-only views; after the bucket.");
}

}  // namespace deltawire::python
