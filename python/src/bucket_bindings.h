// The tensors of a bucket, in Python's memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "deltawire/reducer.h"
#include "deltawire/tensor.h"

namespace deltawire::python {

using Shape = std::vector<std::uint64_t>;

std::uint64_t elements_of(const Shape& shape);
// By dtype_name(); raises for another name.
DType dtype_of(std::string_view name);
Revert revert_called(std::string_view name);  // "exact" or "fold"; raises for another name

// Dense: name, address, bytes of memory and shape of a float32 tensor; with the name of its dtype; and with
// the address of its significance. The bytes are counted by whoever has the memory, not from shape and dtype:
// where these take others, it is another tensor than was meant, and nothing of it is touched.
using TensorAt = std::tuple<std::string, std::uintptr_t, std::uint64_t, Shape>;
using TypedTensorAt = std::tuple<std::string, std::uintptr_t, std::uint64_t, Shape, std::string>;
using SignificantTensorAt =
    std::tuple<std::string, std::uintptr_t, std::uint64_t, Shape, std::string, std::uintptr_t>;

// In key-value form.
struct PairsAt {
  std::string name;
  Shape shape;  // of the dense tensor that is meant
  std::uintptr_t keys = 0;
  std::uintptr_t values = 0;
  std::uint64_t count = 0;
  DType dtype = DType::kF32;
  Pairs mean = {};  // when the bucket is done
};

// Python keeps what a pointer points to until the bucket is done.
using Submitted = std::vector<std::variant<TensorAt, TypedTensorAt, SignificantTensorAt, PairsAt*>>;

// With the names and the shapes of `tensors`, which must outlive them. Raises where their bytes don't fit.
std::vector<Named> named_all(const std::vector<TensorAt>& tensors);
std::vector<Named> named_all(const std::vector<TypedTensorAt>& tensors);

// A bucket as a session takes it, until it is done. `submitted` must live until it is queued.
class SubmittedBucket {
 public:
  explicit SubmittedBucket(const Submitted& submitted);
  SubmittedBucket(const SubmittedBucket&) = delete;
  SubmittedBucket& operator=(const SubmittedBucket&) = delete;

  Bucket bucket() noexcept { return {tensors_, means_}; }
  // The bucket is done: each tensor in key-value form gets its mean.
  void hand_over_means() noexcept;

 private:
  std::vector<Named> tensors_;
  std::vector<PairsAt*> pairs_;
  std::vector<Pairs> means_;  // of pairs_
};

}  // namespace deltawire::python
